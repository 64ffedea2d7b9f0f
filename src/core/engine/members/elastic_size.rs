//! The size of an elastic gang, and which of its waiting members start without waiting for others.

use std::collections::BTreeMap;

use crate::dialect::{Group, Quorum};
use crate::engine::members::MemberCounts;
use crate::engine::members::owner_tally::OwnerTally;
use crate::engine::settings::SafetyRule;
use crate::engine::state::{CountedOwner, ElasticState, EngineView, Gang};
use crate::model::PodUid;
use crate::objects::{ObjectRef, OwnerKind};

impl Gang {
    /// Sets the size of the gang to what the owners want.
    pub(in crate::engine) fn apply_owner_size(&mut self, view: &EngineView<'_>, counts: &MemberCounts) {
        let (Some(elastic_state), Some(own)) =
            (self.elastic_state.as_deref(), self.own_group(view.group_objects))
        else {
            return;
        };
        let tally = self.tally_owners(elastic_state, counts);
        if tally.unread {
            return;
        }
        if tally.owners.is_empty() {
            self.elastic_group = None;
            return;
        }
        let owners_counted = are_owners_counted(elastic_state, own, &tally, counts);
        let group = Group { quorum: followed_quorum(own, &tally, owners_counted), ..own.clone() };
        let peak = elastic_state.peak_running.clone().unwrap_or_default();
        // The owners do not want these members any more, so they are not missing.
        let unwanted: u32 = peak
            .iter()
            .map(|(owner, peak)| peak - (*peak).min(tally.owners.get(owner).map_or(0, |count| count.wants)))
            .sum();
        let peak_running = tally.owners.iter().map(|(owner, count)| {
            let before = peak.get(owner).copied().unwrap_or(0);
            (owner.clone(), before.max(count.running).min(count.wants))
        });
        let peak_running = peak_running.collect();
        self.elastic_group = Some(group);
        let started_with = self.lifecycle.started_with;
        self.lifecycle.started_with = started_with.map(|number| number.saturating_sub(unwanted));
        if let Some(elastic_state) = &mut self.elastic_state {
            elastic_state.owners_counted = owners_counted;
            elastic_state.peak_running = Some(peak_running);
        }
    }

    /// Ready members of a started elastic gang that start without waiting for others, by creation time:
    /// replacements, and members beyond what the owners want.
    pub(in crate::engine) fn independent_members(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
    ) -> Vec<PodUid> {
        let Some(elastic_state) = self.elastic_state.as_deref() else { return Vec::new() };
        let Some(peak) = (elastic_state.peak_running.as_ref())
            .filter(|_| elastic_state.owners_counted && counts.started() > 0)
        else {
            return Vec::new();
        };
        if !view.enforces(SafetyRule::GrowTogether) {
            return counts.ready.clone();
        }
        let tally = self.tally_owners(elastic_state, counts);
        let mut replaceable: BTreeMap<&ObjectRef, u32> = BTreeMap::new();
        for (owner, count) in &tally.owners {
            let peak = peak.get(owner).copied().unwrap_or(0);
            // A gang with succeeded members continues pod by pod.
            let every = peak >= count.wants || counts.succeeded > 0;
            replaceable.insert(owner, if every { u32::MAX } else { peak.saturating_sub(count.running) });
        }
        // An earlier leader knew whose pods are missing. This one replaces as many, of any owner.
        let known = peak.values().fold(tally.loose, |sum, peak| sum.saturating_add(*peak));
        let started_with = self.lifecycle.started_with.unwrap_or(0);
        let mut missing = started_with.min(tally.wanted()).saturating_sub(known);
        let alone = self.pods(&counts.ready).filter(|pod| {
            let owner = pod.owner.as_ref().filter(|owner| OwnerKind::of(owner).is_some());
            let Some(owner) = owner else { return true };
            let CountedOwner::Counts(root, _) = elastic_state.counted_owner(owner) else { return false };
            let left = replaceable.get_mut(root).filter(|left| **left > 0).unwrap_or(&mut missing);
            let starts = *left > 0;
            *left = left.saturating_sub(1);
            starts
        });
        alone.map(|pod| pod.uid.clone()).collect()
    }

    /// Whether the gang was complete before: more members are a scale-up.
    pub(in crate::engine) fn is_scaling_up(&self) -> bool {
        self.elastic_state.as_ref().is_some_and(|elastic_state| {
            elastic_state.owners_counted && self.lifecycle.started_with.is_some_and(|number| number > 0)
        })
    }
}

/// Whether the owners determine the size: they have once wanted as many members as the group says.
fn are_owners_counted(
    elastic_state: &ElasticState,
    own: &Group,
    tally: &OwnerTally,
    counts: &MemberCounts,
) -> bool {
    if elastic_state.owners_counted {
        return true;
    }
    // Numbers of different times do not add up, and a group that counts tasks starts with all of them.
    let tasks = matches!(own.quorum, Quorum::Count(_)) || counts.present_satisfy(&own.quorum);
    // An answer from before the newest member may never have been true at the same time as that member.
    let fresh = !elastic_state.member_added && !elastic_state.is_reading();
    fresh && elastic_state.read_failure.is_none() && tally.wanted() >= own.quorum.min_members() && tasks
}

/// The quorum of a gang that follows its owners. Before the owners count, the group is the minimum.
fn followed_quorum(own: &Group, tally: &OwnerTally, owners_counted: bool) -> Quorum {
    let followed = tally.wanted().saturating_add(tally.ended);
    match &own.quorum {
        _ if owners_counted => Quorum::Count(followed),
        Quorum::Count(least) => Quorum::Count(followed.max(*least)),
        Quorum::Total { min_members: least, quorum } => {
            Quorum::Total { min_members: followed.max(*least), quorum: quorum.clone() }
        }
        tree @ Quorum::Groups { .. } => {
            Quorum::Total { min_members: followed, quorum: Box::new(tree.clone()) }
        }
    }
}
