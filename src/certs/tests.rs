//! Renewal and rotation of shared certificates, day by day.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::*;

/// Decoded `data` of a Secret.
type Data = BTreeMap<String, Vec<u8>>;

const DAY: u64 = 86_400;

fn at(days: u64, seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + days * DAY + seconds)
}

fn names() -> CertificateNames {
    CertificateNames::of_service("portcullis", "portcullis-system")
}

fn next(kept: &TlsSecret, published_for: Option<u64>, now: SystemTime) -> RenewalStep {
    let (names, published_for) = (names(), published_for.map(Duration::from_secs));
    RenewalState {
        kept,
        published_for,
        names: &names,
        now,
        propagation_delay: BUNDLE_PROPAGATION_DELAY,
        renewal_delay_permille: 0,
    }
    .next()
}

/// Returns what another replica reads after one has written the Secret.
fn through_a_secret(kept: &TlsSecret) -> TlsSecret {
    let data: Data = kept.data().into_iter().map(|(key, text)| (key.to_owned(), text.into_bytes())).collect();
    let (read, problems) = TlsSecret::read(&data);
    assert_eq!(problems, Vec::<String>::new());
    read
}

fn founded(now: SystemTime) -> TlsSecret {
    let mut kept = TlsSecret::default();
    apply_step(RenewalStep::Bootstrap, &mut kept, &names(), now).unwrap();
    through_a_secret(&kept)
}

#[test]
fn every_client_trusts_every_leaf_during_the_rotation_of_the_authority() {
    let (empty, problems) = TlsSecret::read(&BTreeMap::new());
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(next(&empty, None, at(0, 0)), RenewalStep::Bootstrap);

    let mut kept = founded(at(0, 0));
    assert_eq!(next(&kept, None, at(0, 0)), RenewalStep::Wait);
    assert_eq!(next(&kept, Some(0), at(19, 0)), RenewalStep::Wait);
    // 20 days of 30; the hour for slow clocks shifts it a little.
    assert_eq!(next(&kept, Some(0), at(20, 0)), RenewalStep::RenewLeaf);

    // Two thirds of a year: the authority is rotated, and replicas still serve its last leaf.
    apply_step(RenewalStep::RenewLeaf, &mut kept, &names(), at(240, 0)).unwrap();
    assert_eq!(next(&kept, Some(0), at(244, 0)), RenewalStep::RotateAuthority);
    let old_bundle = kept.bundle.clone();
    let old_leaf = kept.leaf.as_ref().unwrap().certificate.clone();
    apply_step(RenewalStep::RotateAuthority, &mut kept, &names(), at(244, 0)).unwrap();
    let mut kept = through_a_secret(&kept);
    assert_eq!(kept.bundle[1..], old_bundle[..]);
    assert_eq!(kept.leaf.as_ref().unwrap().certificate, old_leaf);
    assert!(kept.leaf_is_trusted(at(244, 0)) && !kept.leaf_is_current(at(244, 0)));

    // The next step waits until the bundle has been published for the propagation delay.
    for published_for in [None, Some(0), Some(59)] {
        assert_eq!(next(&kept, published_for, at(244, 600)), RenewalStep::Wait, "{published_for:?}");
    }
    assert_eq!(next(&kept, Some(60), at(244, 600)), RenewalStep::RenewLeaf);
    apply_step(RenewalStep::RenewLeaf, &mut kept, &names(), at(244, 600)).unwrap();
    assert!(kept.leaf_is_current(at(244, 600)));
    assert_ne!(kept.leaf.as_ref().unwrap().certificate, old_leaf);

    // A disconnected replica serves the old leaf until it expires. The old authority stays trusted until
    // then.
    apply_step(RenewalStep::RenewLeaf, &mut kept, &names(), at(264, 600)).unwrap();
    assert_eq!(next(&kept, Some(600), at(273, 0)), RenewalStep::Wait);
    assert_eq!(next(&kept, Some(600), at(274, 3600)), RenewalStep::PruneAuthorities);
    apply_step(RenewalStep::PruneAuthorities, &mut kept, &names(), at(274, 3600)).unwrap();
    assert_eq!(kept.bundle.len(), 1);
    assert!(kept.leaf_is_trusted(at(274, 3600)));
    assert_eq!(next(&through_a_secret(&kept), Some(600), at(274, 3600)), RenewalStep::Wait);
}

#[test]
fn invalid_certificates_are_replaced_without_delay() {
    let kept = founded(at(0, 0));
    // The leaf has expired while no replica was running.
    assert_eq!(next(&kept, None, at(40, 0)), RenewalStep::RenewLeaf);
    // The authority has expired, too.
    assert_eq!(next(&kept, None, at(400, 0)), RenewalStep::Bootstrap);

    let broken = |change: &dyn Fn(&mut Data)| {
        let mut data: Data =
            kept.data().into_iter().map(|(key, text)| (key.to_owned(), text.into_bytes())).collect();
        change(&mut data);
        let (read, problems) = TlsSecret::read(&data);
        (next(&read, Some(600), at(1, 0)), problems.len())
    };
    let put = |key: &'static str, text: String| {
        move |data: &mut Data| {
            data.insert(key.to_owned(), text.clone().into_bytes());
        }
    };
    let other = founded(at(0, 0)).data();
    assert_eq!(broken(&|_| {}), (RenewalStep::Wait, 0));
    assert_eq!(
        broken(&|data| {
            data.remove("ca.key");
        }),
        (RenewalStep::RotateAuthority, 1)
    );
    assert_eq!(broken(&put("ca.key", other["ca.key"].clone())), (RenewalStep::RotateAuthority, 1));
    assert_eq!(broken(&put("ca.crt", "nothing".to_owned())), (RenewalStep::Bootstrap, 1));
    assert_eq!(
        broken(&|data| {
            data.remove("tls.crt");
        }),
        (RenewalStep::RenewLeaf, 1)
    );
    assert_eq!(broken(&put("tls.key", other["tls.key"].clone())), (RenewalStep::RenewLeaf, 1));
    // A leaf of another authority.
    let theirs = |data: &mut Data| {
        for key in ["tls.crt", "tls.key"] {
            data.insert(key.to_owned(), other[key].clone().into_bytes());
        }
    };
    assert_eq!(broken(&theirs), (RenewalStep::RenewLeaf, 0));
}

#[test]
fn replicas_with_different_names_converge_on_one_leaf() {
    let mut kept = founded(at(0, 0));
    let more = CertificateNames {
        dns: vec!["portcullis.example".to_owned()],
        addresses: vec![[10, 0, 0, 7].into()],
    };
    let wants = |kept: &TlsSecret, names: &CertificateNames| {
        RenewalState {
            kept,
            published_for: None,
            names,
            now: at(1, 0),
            propagation_delay: BUNDLE_PROPAGATION_DELAY,
            renewal_delay_permille: 0,
        }
        .next()
    };
    assert_eq!(wants(&kept, &more), RenewalStep::RenewLeaf);
    apply_step(RenewalStep::RenewLeaf, &mut kept, &more, at(1, 0)).unwrap();
    let kept = through_a_secret(&kept);
    assert_eq!((wants(&kept, &more), wants(&kept, &names())), (RenewalStep::Wait, RenewalStep::Wait));
}

#[test]
fn a_replica_with_a_delay_renews_later_but_before_the_expiry() {
    let kept = founded(at(0, 0));
    let names = names();
    let step = |now, renewal_delay_permille| {
        RenewalState {
            kept: &kept,
            published_for: None,
            names: &names,
            now,
            propagation_delay: BUNDLE_PROPAGATION_DELAY,
            renewal_delay_permille,
        }
        .next()
    };
    assert_eq!((step(at(20, 0), 0), step(at(20, 0), 50)), (RenewalStep::RenewLeaf, RenewalStep::Wait));
    assert_eq!(step(at(21, 13 * 3600), 50), RenewalStep::RenewLeaf);
    assert_eq!(step(at(22, 0), 4_000_000), RenewalStep::RenewLeaf);
}
