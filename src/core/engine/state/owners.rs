//! What the engine knows of the owners of an elastic gang's pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::state::{RetrySlots, RetryTimer};
use crate::model::{GangId, Str, Time};
use crate::objects::{ObjectRef, OwnerKind};
use crate::pod::OwnerState;

/// After this many failed reads in a row, the last answer counts. A refused read counts twice.
pub(in crate::engine) const MAX_OWNER_READ_FAILURES: u32 = 6;

/// What the engine knows of the owners of the pods of an elastic gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct ElasticState {
    /// A member was created since the last read.
    pub member_added: bool,
    /// A member was deleted, or changed its owner, since the last read.
    pub member_removed: bool,
    pub readings: BTreeMap<ObjectRef, OwnerLookup>,
    /// The read that is under way.
    pub round: Option<OwnerReadRound>,
    /// Start of the last read.
    pub last_read: Option<Time>,
    pub retry: RetryTimer,
    /// The error of the last read, and the number of failed reads in a row.
    pub read_failure: Option<(Str, u32)>,
    /// The owners have wanted as many members as the group says: all owners are known.
    pub owners_counted: bool,
    /// The most pods of each owner that ran at once, at most as many as it wants. `None` before the first
    /// count. It tells a replacement from a scale-up.
    pub peak_running: Option<BTreeMap<ObjectRef, u32>>,
}

/// The last answer about an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum OwnerLookup {
    Present(OwnerState),
    Gone,
}

/// One read of all owners of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct OwnerReadRound {
    pub under_way: BTreeSet<ObjectRef>,
    pub found: BTreeMap<ObjectRef, OwnerLookup>,
    pub read_failure: Option<Str>,
    /// The API server refused one of the reads.
    pub is_refused: bool,
}

/// The owner that determines the number of pods.
pub(in crate::engine) enum CountedOwner<'a> {
    /// The owner has not been read yet.
    Unread,
    /// The owner is deleted, and its pod soon will be.
    Gone,
    Counts(&'a ObjectRef, &'a OwnerState),
}

impl ElasticState {
    /// The owner that determines how many pods this owner of a pod has: itself or its Deployment.
    pub(in crate::engine) fn counted_owner<'a>(&'a self, owner: &'a ObjectRef) -> CountedOwner<'a> {
        let reading = match self.readings.get(owner) {
            None => return CountedOwner::Unread,
            Some(OwnerLookup::Gone) => return CountedOwner::Gone,
            Some(OwnerLookup::Present(reading)) => reading,
        };
        match deployment_of(reading) {
            None => CountedOwner::Counts(owner, reading),
            Some(above) => match self.readings.get(above) {
                None => CountedOwner::Unread,
                Some(OwnerLookup::Gone) => CountedOwner::Gone,
                Some(OwnerLookup::Present(reading)) => CountedOwner::Counts(above, reading),
            },
        }
    }

    /// The owners without a pod at the moment that will create pods of this gang again.
    pub(in crate::engine) fn owners_without_pods<'a>(
        &'a self,
        id: &GangId,
    ) -> impl Iterator<Item = (&'a ObjectRef, &'a OwnerState)> {
        self.readings.iter().filter_map(move |(owner, reading)| match reading {
            OwnerLookup::Present(state) if will_create_pods_of(state, id) => Some((owner, state)),
            OwnerLookup::Present(_) | OwnerLookup::Gone => None,
        })
    }

    /// The state of an owner that was read and exists.
    pub(in crate::engine) fn reading(&self, owner: &ObjectRef) -> Option<&OwnerState> {
        match self.readings.get(owner)? {
            OwnerLookup::Present(state) => Some(state),
            OwnerLookup::Gone => None,
        }
    }

    /// Whether a read is under way.
    pub(in crate::engine) fn is_reading(&self) -> bool {
        self.round.is_some()
    }

    /// Whether a read is under way or needed, after which the size of the gang may be different.
    pub(in crate::engine) fn is_outdated(&self) -> bool {
        self.is_reading() || self.member_removed
    }

    /// Whether the last read failed, and not often enough for the last answer to count.
    pub(in crate::engine) fn is_unreliable(&self) -> bool {
        self.read_failure.as_ref().is_some_and(|(_, tries)| *tries < MAX_OWNER_READ_FAILURES)
    }

    /// Takes in the end of a round: its readings replace all earlier ones.
    pub(in crate::engine) fn finish_round(
        &mut self,
        round: OwnerReadRound,
        now: Time,
        slots: &mut RetrySlots,
    ) {
        self.readings = round.found;
        match round.read_failure {
            None => {
                self.read_failure = None;
                self.retry.succeed();
            }
            Some(read_failure) => {
                let tries = self.read_failure.as_ref().map_or(0, |(_, tries)| *tries);
                // A refusal is more likely to be the last answer than a failure, and its delays are longer.
                let weight = if round.is_refused { 2 } else { 1 };
                self.read_failure =
                    Some((read_failure, tries.saturating_add(weight).min(MAX_OWNER_READ_FAILURES)));
                if round.is_refused {
                    self.retry.refuse(now, slots);
                } else {
                    self.retry.fail(now);
                }
            }
        }
    }
}

/// Whether an owner creates pods of this gang when it creates the next ones.
fn will_create_pods_of(owner: &OwnerState, id: &GangId) -> bool {
    owner.desired_pods > 0 && owner.gang.as_ref() == Some(id) && deployment_of(owner).is_none()
}

/// The Deployment of a ReplicaSet.
pub(in crate::engine) fn deployment_of(reading: &OwnerState) -> Option<&ObjectRef> {
    reading.controller.as_ref().filter(|owner| OwnerKind::of(owner) == Some(OwnerKind::Deployment))
}
