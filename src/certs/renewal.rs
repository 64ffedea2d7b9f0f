//! Decides the next renewal step of the certificates that the replicas share. Pure: all inputs are arguments.
//!
//! The rotation of an authority never presents a leaf that a client does not trust:
//! 1. A new authority is added to the front of the bundle.
//! 2. A replica publishes the bundle in every webhook configuration.
//! 3. After the bundle has been published for [`BUNDLE_PROPAGATION_DELAY`], the new authority signs a leaf.
//! 4. The old authority is removed from the bundle after every leaf that it signed has expired.

use std::time::{Duration, SystemTime};

use super::authority::MAX_CLOCK_SKEW;
use super::{CertificateError, CertificateNames, LEAF_LIFETIME, TlsSecret, Validity};

/// Time between the publication of a bundle in the webhook configurations and the first leaf of its new
/// authority. Each API server reads the configurations by its own watch.
pub const BUNDLE_PROPAGATION_DELAY: Duration = Duration::from_secs(60);

/// The next change of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalStep {
    /// Change nothing.
    Wait,
    /// Create an authority and its leaf at once. No working leaf exists, so there is no reason to wait for
    /// the propagation of the bundle.
    Bootstrap,
    /// Create an authority. Replicas still serve the leaf of the old one.
    RotateAuthority,
    /// Sign a new leaf.
    RenewLeaf,
    /// Remove old authorities from the bundle.
    PruneAuthorities,
}

/// The inputs of the decision.
#[derive(Clone, Copy)]
pub struct RenewalState<'a> {
    /// The content of the Secret.
    pub kept: &'a TlsSecret,
    /// Time since this replica first saw exactly this bundle in every webhook configuration; `None` if one
    /// differs.
    pub published_for: Option<Duration>,
    /// The names that the leaf must cover.
    pub names: &'a CertificateNames,
    /// The wall clock time.
    pub now: SystemTime,
    /// Time for which a bundle must be published before its new authority signs. The default is
    /// [`BUNDLE_PROPAGATION_DELAY`].
    pub propagation_delay: Duration,
    /// Delay of this replica's renewals, in thousandths of the validity period; at most 50. Replicas differ
    /// in it, so that they do not all renew at the same time.
    pub renewal_delay_permille: u32,
}

impl RenewalState<'_> {
    /// Returns the next step. Call it again after [`apply_step`].
    pub fn next(&self) -> RenewalStep {
        let (kept, now) = (self.kept, self.now);
        let served = kept.leaf.as_ref().is_some_and(|leaf| leaf.validity.holds_at(now));
        let Some(authority) = kept.authority.as_ref().filter(|authority| authority.validity().holds_at(now))
        else {
            // The key of the authority is lost, but the leaf that it signed is still valid.
            return if served && kept.leaf_is_trusted(now) {
                RenewalStep::RotateAuthority
            } else {
                RenewalStep::Bootstrap
            };
        };
        let Some(leaf) = kept.leaf.as_ref().filter(|_| served && kept.leaf_is_trusted(now)) else {
            return RenewalStep::RenewLeaf;
        };
        let current = kept.leaf_is_current(now);
        if current && self.renewal_is_due(authority.validity()) {
            return RenewalStep::RotateAuthority;
        }
        if !current {
            let propagated = self.published_for.is_some_and(|time| time >= self.propagation_delay);
            return if propagated { RenewalStep::RenewLeaf } else { RenewalStep::Wait };
        }
        let covers_names = leaf.names().is_ok_and(|names| names.cover(self.names));
        if !covers_names || self.renewal_is_due(leaf.validity) {
            return RenewalStep::RenewLeaf;
        }
        if kept.bundle.len() > 1 && now >= self.prune_time(authority.validity().not_before) {
            return RenewalStep::PruneAuthorities;
        }
        RenewalStep::Wait
    }

    fn renewal_is_due(&self, validity: Validity) -> bool {
        let life = validity.not_after.duration_since(validity.not_before).unwrap_or_default();
        let delay = life / 1000 * self.renewal_delay_permille.min(50);
        self.now < validity.not_before || self.now >= validity.renewal_time() + delay
    }

    /// Returns the expiry of the old authority's leaves: it signed the last one before the new authority was
    /// created.
    fn prune_time(&self, new_since: SystemTime) -> SystemTime {
        new_since + MAX_CLOCK_SKEW + LEAF_LIFETIME + self.propagation_delay
    }
}

/// Applies a step to the content of the Secret. [`RenewalStep::Wait`] changes nothing.
///
/// # Errors
/// If a certificate cannot be created.
pub fn apply_step(
    step: RenewalStep,
    kept: &mut TlsSecret,
    names: &CertificateNames,
    now: SystemTime,
) -> Result<(), CertificateError> {
    match step {
        RenewalStep::Wait => {}
        RenewalStep::Bootstrap => {
            kept.bundle.retain(|old| old.validity.holds_at(now));
            kept.add_authority(now)?;
            kept.issue_leaf(names, now)?;
        }
        RenewalStep::RotateAuthority => kept.add_authority(now)?,
        RenewalStep::RenewLeaf => kept.issue_leaf(names, now)?,
        RenewalStep::PruneAuthorities => kept.bundle.truncate(1),
    }
    Ok(())
}
