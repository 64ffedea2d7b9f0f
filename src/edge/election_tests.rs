//! The election against a lease in memory: acquire, renew, expire, lose, release, and epochs that only go up.

use std::time::Duration;

use portcullis_core::model::Epoch;
use portcullis_core::model::random::Random;

use crate::{
    Election, ElectionReport, ElectionRequest, ElectionStep, LEASE_DURATION, LeaseChange, LeaseReading,
    Monotonic, ReadFailure,
};

/// A lease object with compare-and-swap.
#[derive(Default)]
struct LeaseStore {
    lease: Option<LeaseReading>,
    version: u64,
    /// The highest epoch in the gangs, as the page that answers a list.
    gangs: String,
    fails: bool,
}

impl LeaseStore {
    fn apply(&mut self, identity: &str, change: LeaseChange) -> LeaseReading {
        self.version += 1;
        let mut lease = self.lease.take().unwrap_or(LeaseReading {
            resource_version: String::new(),
            holder: String::new(),
            transitions: 0,
            duration: LEASE_DURATION,
        });
        match change {
            LeaseChange::Acquire(epoch) => (lease.holder, lease.transitions) = (identity.to_owned(), epoch.0),
            LeaseChange::Renew => {}
            LeaseChange::Release => lease.holder.clear(),
        }
        lease.resource_version = self.version.to_string();
        self.lease = Some(lease.clone());
        lease
    }

    /// Sends the request of the next step. Returns when the election waits until, or `None` after it is done.
    fn turn(&mut self, election: &mut Election, now: Monotonic) -> Option<Monotonic> {
        loop {
            let request = match election.step(now) {
                ElectionStep::Wait(until) => return Some(until),
                ElectionStep::Done => return None,
                ElectionStep::Send { request, .. } => request,
            };
            if self.fails {
                election.lease(Err(ReadFailure::Failed("500: test".to_owned())), now);
                continue;
            }
            let identity = election.identity().to_owned();
            let answer = match request {
                ElectionRequest::ListGangs(_) => {
                    election.gangs(Ok(self.gangs.as_bytes()), now);
                    continue;
                }
                ElectionRequest::Read => self.lease.clone(),
                ElectionRequest::Create(change) => {
                    self.lease.is_none().then(|| self.apply(&identity, change))
                }
                ElectionRequest::Update { resource_version, change } => {
                    let matches =
                        self.lease.as_ref().is_some_and(|lease| lease.resource_version == resource_version);
                    matches.then(|| self.apply(&identity, change))
                }
            };
            election.lease(Ok(answer), now);
        }
    }
}

fn at(millis: u64) -> Monotonic {
    Monotonic(Duration::from_millis(millis))
}

fn candidate(identity: &str) -> Election {
    Election::new(identity.to_owned(), 500, Random::new(1))
}

fn no_gangs() -> String {
    r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned()
}

fn store() -> LeaseStore {
    LeaseStore { gangs: no_gangs(), ..LeaseStore::default() }
}

/// The reports that the driver passes to the engine.
fn changes(election: &mut Election) -> Vec<String> {
    let reports = election.take_reports().into_iter();
    reports
        .filter_map(|report| match report {
            ElectionReport::Acquired(epoch) => Some(format!("acquired {epoch}")),
            ElectionReport::Lost { epoch, .. } => Some(format!("lost {epoch}")),
            ElectionReport::Resigned { epoch, .. } => Some(format!("resigned {epoch}")),
            ElectionReport::Released(epoch) => Some(format!("released {epoch}")),
            _ => None,
        })
        .collect()
}

#[test]
fn one_of_two_candidates_acquires_and_the_other_takes_over_after_the_lease_expired() {
    let mut store = store();
    let (mut a, mut b) = (candidate("a"), candidate("b"));
    store.turn(&mut a, at(0));
    store.turn(&mut b, at(0));
    assert_eq!(changes(&mut a), ["acquired 1"]);
    assert_eq!(changes(&mut b), Vec::<String>::new());
    // `a` stops renewing. `b` saw the lease first at 0 ms.
    let mut now = at(0);
    while b.epoch().is_none() {
        now = store.turn(&mut b, now).expect("the election goes on");
        assert!(now.0 < LEASE_DURATION * 2, "{now:?}");
        if b.epoch().is_none() {
            assert!(now.0 < LEASE_DURATION + Duration::from_secs(1), "{now:?}");
        }
    }
    assert_eq!(changes(&mut b), ["acquired 2"]);
    // `a` wakes up: its deadline has passed, so it stops before it sends anything.
    store.turn(&mut a, at(20_000));
    assert_eq!(changes(&mut a), ["lost 1"]);
}

#[test]
fn a_leader_that_renews_keeps_the_lease() {
    let mut store = store();
    let (mut a, mut b) = (candidate("a"), candidate("b"));
    let (mut a_next, mut b_next) = (at(0), at(0));
    for millis in (0..60_000).step_by(50) {
        let now = at(millis);
        if a_next <= now {
            a_next = store.turn(&mut a, now).expect("the election goes on");
        }
        if b_next <= now {
            b_next = store.turn(&mut b, now).expect("the election goes on");
        }
    }
    assert_eq!((a.epoch(), b.epoch()), (Some(Epoch(1)), None));
}

#[test]
fn a_leader_that_cannot_renew_stops_before_the_lease_expires() {
    let mut store = store();
    let mut a = candidate("a");
    let mut now = store.turn(&mut a, at(0)).expect("the election goes on");
    store.fails = true;
    while a.epoch().is_some() {
        now = store.turn(&mut a, now).expect("the election goes on");
        assert!(now.0 < LEASE_DURATION, "{now:?}");
    }
    assert_eq!(changes(&mut a), ["acquired 1", "lost 1"]);
}

#[test]
fn a_deleted_lease_is_created_with_an_epoch_above_every_epoch_in_the_gangs() {
    let mut store = store();
    store.gangs = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"namespace":"x","name":"g"},
        "spec":{"dialect":"kai","group":"g"},"status":{"epoch":41}}]}"#
        .to_owned();
    let mut a = candidate("a");
    store.turn(&mut a, at(0));
    assert_eq!(changes(&mut a), ["acquired 42"]);
}

#[test]
fn epochs_only_go_up_when_the_lease_was_reset() {
    let mut store = store();
    let mut a = candidate("a");
    a.raise_epoch_floor(Epoch(7));
    store.apply("", LeaseChange::Acquire(Epoch(3)));
    store.turn(&mut a, at(0));
    assert_eq!(changes(&mut a), ["acquired 8"]);
}

#[test]
fn the_same_process_acquires_again_under_a_higher_epoch() {
    let mut store = store();
    let mut a = candidate("a");
    store.apply("a", LeaseChange::Acquire(Epoch(5)));
    store.turn(&mut a, at(0));
    assert_eq!(changes(&mut a), ["acquired 6"]);
}

#[test]
fn another_client_may_touch_the_lease_but_not_take_it() {
    let mut store = store();
    let mut a = candidate("a");
    store.turn(&mut a, at(0));
    store.apply("someone", LeaseChange::Renew);
    store.turn(&mut a, at(2000));
    assert_eq!((a.epoch(), changes(&mut a)), (Some(Epoch(1)), vec!["acquired 1".to_owned()]));
    store.apply("b", LeaseChange::Acquire(Epoch(2)));
    store.turn(&mut a, at(4000));
    assert_eq!((a.epoch(), changes(&mut a)), (None, vec!["lost 1".to_owned()]));
}

#[test]
fn a_leader_steps_down_for_its_own_epoch_only_and_releases_at_shutdown() {
    let mut store = store();
    let mut a = candidate("a");
    store.turn(&mut a, at(0));
    a.step_down(Epoch(9));
    store.turn(&mut a, at(100));
    assert_eq!(changes(&mut a), ["acquired 1"]);
    a.step_down(Epoch(1));
    store.turn(&mut a, at(200));
    assert_eq!(changes(&mut a), ["resigned 1", "released 1"]);
    assert_eq!(store.lease.as_ref().map(|lease| lease.holder.as_str()), Some(""));
    store.turn(&mut a, at(1500));
    assert_eq!(changes(&mut a), ["acquired 2"]);
    a.shut_down();
    assert_eq!(store.turn(&mut a, at(1600)), None);
    assert_eq!(changes(&mut a), ["resigned 2", "released 2"]);
}
