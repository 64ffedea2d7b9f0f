//! The life of shared certificates, day by day.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::*;

/// Decoded `data` of a Secret.
type Data = BTreeMap<String, Vec<u8>>;

const DAY: u64 = 86_400;

fn at(days: u64, seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + days * DAY + seconds)
}

fn names() -> Names {
    Names::of_service("portcullis", "portcullis-system")
}

fn next(kept: &Kept, published_for: Option<u64>, now: SystemTime) -> Step {
    let (names, published_for) = (names(), published_for.map(Duration::from_secs));
    Situation { kept, published_for, names: &names, now, settling: SETTLING, patience: 0 }.next()
}

/// As a Secret keeps it: what one replica writes, another reads.
fn through_a_secret(kept: &Kept) -> Kept {
    let data: Data = kept.data().into_iter().map(|(key, text)| (key.to_owned(), text.into_bytes())).collect();
    let (read, problems) = Kept::read(&data);
    assert_eq!(problems, Vec::<String>::new());
    read
}

fn founded(now: SystemTime) -> Kept {
    let mut kept = Kept::default();
    carry_out(Step::Found, &mut kept, &names(), now).unwrap();
    through_a_secret(&kept)
}

#[test]
fn an_authority_is_rolled_in_an_order_in_which_everybody_trusts_every_leaf() {
    let (empty, problems) = Kept::read(&BTreeMap::new());
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(next(&empty, None, at(0, 0)), Step::Found);

    let mut kept = founded(at(0, 0));
    assert_eq!(next(&kept, None, at(0, 0)), Step::Rest);
    assert_eq!(next(&kept, Some(0), at(19, 0)), Step::Rest);
    // 20 days of 30; the hour for slow clocks shifts it a little.
    assert_eq!(next(&kept, Some(0), at(20, 0)), Step::RenewLeaf);

    // Two thirds of a year: the authority is rolled, its last leaf is served on.
    carry_out(Step::RenewLeaf, &mut kept, &names(), at(240, 0)).unwrap();
    assert_eq!(next(&kept, Some(0), at(244, 0)), Step::RollAuthority);
    let old_bundle = kept.bundle.clone();
    let old_leaf = kept.leaf.as_ref().unwrap().certificate.clone();
    carry_out(Step::RollAuthority, &mut kept, &names(), at(244, 0)).unwrap();
    let mut kept = through_a_secret(&kept);
    assert_eq!(kept.bundle[1..], old_bundle[..]);
    assert_eq!(kept.leaf.as_ref().unwrap().certificate, old_leaf);
    assert!(kept.leaf_is_trusted(at(244, 0)) && !kept.leaf_is_current(at(244, 0)));

    // Nothing happens until the bundle has been seen everywhere for a while.
    for published_for in [None, Some(0), Some(59)] {
        assert_eq!(next(&kept, published_for, at(244, 600)), Step::Rest, "{published_for:?}");
    }
    assert_eq!(next(&kept, Some(60), at(244, 600)), Step::RenewLeaf);
    carry_out(Step::RenewLeaf, &mut kept, &names(), at(244, 600)).unwrap();
    assert!(kept.leaf_is_current(at(244, 600)));
    assert_ne!(kept.leaf.as_ref().unwrap().certificate, old_leaf);

    // A replica that is cut off serves the old leaf until it expires: the old authority stays as long.
    carry_out(Step::RenewLeaf, &mut kept, &names(), at(264, 600)).unwrap();
    assert_eq!(next(&kept, Some(600), at(273, 0)), Step::Rest);
    assert_eq!(next(&kept, Some(600), at(274, 3600)), Step::Forget);
    carry_out(Step::Forget, &mut kept, &names(), at(274, 3600)).unwrap();
    assert_eq!(kept.bundle.len(), 1);
    assert!(kept.leaf_is_trusted(at(274, 3600)));
    assert_eq!(next(&through_a_secret(&kept), Some(600), at(274, 3600)), Step::Rest);
}

#[test]
fn what_does_not_work_is_replaced_without_waiting() {
    let kept = founded(at(0, 0));
    // The leaf has expired while nothing ran.
    assert_eq!(next(&kept, None, at(40, 0)), Step::RenewLeaf);
    // So has the authority.
    assert_eq!(next(&kept, None, at(400, 0)), Step::Found);

    let broken = |change: &dyn Fn(&mut Data)| {
        let mut data: Data =
            kept.data().into_iter().map(|(key, text)| (key.to_owned(), text.into_bytes())).collect();
        change(&mut data);
        let (read, problems) = Kept::read(&data);
        (next(&read, Some(600), at(1, 0)), problems.len())
    };
    let put = |key: &'static str, text: String| {
        move |data: &mut Data| {
            data.insert(key.to_owned(), text.clone().into_bytes());
        }
    };
    let other = founded(at(0, 0)).data();
    assert_eq!(broken(&|_| {}), (Step::Rest, 0));
    assert_eq!(
        broken(&|data| {
            data.remove("ca.key");
        }),
        (Step::RollAuthority, 1)
    );
    assert_eq!(broken(&put("ca.key", other["ca.key"].clone())), (Step::RollAuthority, 1));
    assert_eq!(broken(&put("ca.crt", "nothing".to_owned())), (Step::Found, 1));
    assert_eq!(
        broken(&|data| {
            data.remove("tls.crt");
        }),
        (Step::RenewLeaf, 1)
    );
    assert_eq!(broken(&put("tls.key", other["tls.key"].clone())), (Step::RenewLeaf, 1));
    // A leaf of somebody else's authority.
    let theirs = |data: &mut Data| {
        for key in ["tls.crt", "tls.key"] {
            data.insert(key.to_owned(), other[key].clone().into_bytes());
        }
    };
    assert_eq!(broken(&theirs), (Step::RenewLeaf, 0));
}

#[test]
fn replicas_that_want_different_names_agree_on_one_leaf() {
    let mut kept = founded(at(0, 0));
    let more = Names { dns: vec!["portcullis.example".to_owned()], addresses: vec![[10, 0, 0, 7].into()] };
    let wants = |kept: &Kept, names: &Names| {
        Situation { kept, published_for: None, names, now: at(1, 0), settling: SETTLING, patience: 0 }.next()
    };
    assert_eq!(wants(&kept, &more), Step::RenewLeaf);
    carry_out(Step::RenewLeaf, &mut kept, &more, at(1, 0)).unwrap();
    let kept = through_a_secret(&kept);
    assert_eq!((wants(&kept, &more), wants(&kept, &names())), (Step::Rest, Step::Rest));
}

#[test]
fn a_patient_replica_renews_later_and_never_too_late() {
    let kept = founded(at(0, 0));
    let names = names();
    let step = |now, patience| {
        Situation { kept: &kept, published_for: None, names: &names, now, settling: SETTLING, patience }
            .next()
    };
    assert_eq!((step(at(20, 0), 0), step(at(20, 0), 50)), (Step::RenewLeaf, Step::Rest));
    assert_eq!(step(at(21, 13 * 3600), 50), Step::RenewLeaf);
    assert_eq!(step(at(22, 0), 4_000_000), Step::RenewLeaf);
}
