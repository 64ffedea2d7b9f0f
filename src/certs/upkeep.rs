//! What to do next about the certificates that replicas share. Pure: everything that matters is an argument.
//!
//! An authority is rolled in an order in which no client ever meets a leaf it does not trust: the new
//! authority goes into the bundle, in front of the old one; the bundle is published in every webhook
//! configuration, and seen there for [`SETTLING`]; only then the new authority signs a leaf; and the old one
//! leaves the bundle when every leaf it ever signed has expired.

use std::time::{Duration, SystemTime};

use super::authority::CLOCK_SKEW;
use super::{CertificateError, Kept, LEAF_LIFETIME, Names, Validity};

/// How long the bundle should have been seen in the webhook configurations before a leaf is signed by an
/// authority that is new in it: API servers learn of a configuration by a watch, each on its own.
pub const SETTLING: Duration = Duration::from_secs(60);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// A new authority and a leaf of it, at once: there is nothing that works, so there is nothing to wait
    /// for.
    Found,
    /// A new authority, while the leaf of the old one is served on.
    RollAuthority,
    /// A new leaf.
    RenewLeaf,
    /// Old authorities leave the bundle.
    Forget,
}

/// What the next step follows from.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// What the Secret holds.
    pub kept: &'a Kept,
    /// For how long every webhook configuration has been seen with exactly this bundle; `None` when one has
    /// not.
    pub published_for: Option<Duration>,
    /// The names that the leaf must have.
    pub names: &'a Names,
    /// The time of day.
    pub now: SystemTime,
    /// How long the bundle must have been seen published before an authority that is new in it signs;
    /// [`SETTLING`] unless somebody says otherwise.
    pub settling: Duration,
    /// How much later than others this replica renews, so that they do not all do it at once; in 1/1000 of a
    /// life, up to 50.
    pub patience: u32,
}

impl Situation<'_> {
    /// The next step; after it has been done, ask again.
    pub fn next(&self) -> Step {
        let (kept, now) = (self.kept, self.now);
        let served = kept.leaf.as_ref().is_some_and(|leaf| leaf.validity.holds_at(now));
        let Some(authority) = kept.authority.as_ref().filter(|authority| authority.validity().holds_at(now))
        else {
            // The key of the authority is lost, but what it signed still works.
            return if served && kept.leaf_is_trusted(now) { Step::RollAuthority } else { Step::Found };
        };
        let Some(leaf) = kept.leaf.as_ref().filter(|_| served && kept.leaf_is_trusted(now)) else {
            return Step::RenewLeaf;
        };
        let current = kept.leaf_is_current(now);
        if current && self.renewal_is_due(authority.validity()) {
            return Step::RollAuthority;
        }
        if !current {
            let settled = self.published_for.is_some_and(|long| long >= self.settling);
            return if settled { Step::RenewLeaf } else { Step::Rest };
        }
        let named = leaf.names().is_ok_and(|has| has.cover(self.names));
        if !named || self.renewal_is_due(leaf.validity) {
            return Step::RenewLeaf;
        }
        if kept.bundle.len() > 1 && now >= self.forget_after(authority.validity().not_before) {
            return Step::Forget;
        }
        Step::Rest
    }

    fn renewal_is_due(&self, validity: Validity) -> bool {
        let life = validity.not_after.duration_since(validity.not_before).unwrap_or_default();
        let patience = life / 1000 * self.patience.min(50);
        self.now < validity.not_before || self.now >= validity.renewal_time() + patience
    }

    /// The old authority signed its last leaf before the new one was made.
    fn forget_after(&self, new_since: SystemTime) -> SystemTime {
        new_since + CLOCK_SKEW + LEAF_LIFETIME + self.settling
    }
}

/// Carries a step out on what is kept. `Rest` changes nothing.
///
/// # Errors
/// When a certificate cannot be made.
pub fn carry_out(
    step: Step,
    kept: &mut Kept,
    names: &Names,
    now: SystemTime,
) -> Result<(), CertificateError> {
    match step {
        Step::Rest => {}
        Step::Found => {
            kept.bundle.retain(|old| old.validity.holds_at(now));
            kept.found_authority(now)?;
            kept.issue_leaf(names, now)?;
        }
        Step::RollAuthority => kept.found_authority(now)?,
        Step::RenewLeaf => kept.issue_leaf(names, now)?,
        Step::Forget => kept.bundle.truncate(1),
    }
    Ok(())
}
