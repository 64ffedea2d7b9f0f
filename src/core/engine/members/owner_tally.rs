//! Counts the members of an elastic gang by the owners of their pods.

use std::collections::BTreeMap;

use crate::engine::members::MemberCounts;
use crate::engine::state::{CountedOwner, ElasticState, Gang};
use crate::objects::{ObjectRef, OwnerKind};

/// A summary names at most this many owners before "and N more".
const MAX_NAMED_OWNERS: usize = 6;

/// The members of an elastic gang, counted by owner.
#[derive(Default)]
pub(in crate::engine) struct OwnerTally {
    pub owners: BTreeMap<ObjectRef, OwnerCount>,
    /// Live pods of other kinds of owners, or without one.
    pub loose: u32,
    /// Succeeded pods.
    pub ended: u32,
    /// An owner has not been read yet.
    pub unread: bool,
    /// The owners that have more pods than they want, as a sentence.
    pub surplus: Option<String>,
}

/// The pods of one owner.
#[derive(Default)]
pub(in crate::engine) struct OwnerCount {
    pub wants: u32,
    pub live: u32,
    pub running: u32,
}

impl OwnerTally {
    /// The number of members that the owners want, with the pods of other owners.
    pub(in crate::engine) fn wanted(&self) -> u32 {
        let owners = self.owners.values().fold(0_u32, |sum, count| sum.saturating_add(count.wants));
        owners.saturating_add(self.loose)
    }

    /// `Deployment app-server 1, Job train 4, 2 pods of other owners or none`.
    pub(in crate::engine) fn summary(&self) -> String {
        let each = self.owners.iter().take(MAX_NAMED_OWNERS);
        let mut list: Vec<String> =
            each.map(|(owner, count)| format!("{} {} {}", owner.kind, owner.name, count.wants)).collect();
        if self.owners.len() > MAX_NAMED_OWNERS {
            list.push(format!("and {} more", self.owners.len() - MAX_NAMED_OWNERS));
        }
        if self.loose > 0 {
            let pods = portcullis_text::counted(self.loose, "pod", "pods");
            list.push(format!("{pods} of other owners or none"));
        }
        list.join(", ")
    }
}

impl Gang {
    /// Counts the live members by owner, with what was read of the owners.
    pub(in crate::engine) fn tally_owners(
        &self,
        elastic_state: &ElasticState,
        counts: &MemberCounts,
    ) -> OwnerTally {
        let mut tally = OwnerTally { ended: counts.succeeded, ..OwnerTally::default() };
        let mut pods_by_owner: BTreeMap<&ObjectRef, u32> = BTreeMap::new();
        let mut orphans = 0_u32;
        for member in self.members.values().filter(|member| member.live()) {
            let Some(owner) = member.pod.owner.as_ref().filter(|owner| OwnerKind::of(owner).is_some()) else {
                tally.loose += 1;
                continue;
            };
            match elastic_state.counted_owner(owner) {
                CountedOwner::Unread => tally.unread = true,
                CountedOwner::Gone => orphans += 1,
                CountedOwner::Counts(root, reading) => {
                    let count = tally.owners.entry(root.clone()).or_insert_with(|| OwnerCount {
                        wants: reading.desired_pods,
                        ..OwnerCount::default()
                    });
                    count.live += 1;
                    count.running += u32::from(member.active());
                    *pods_by_owner.entry(owner).or_default() += 1;
                }
            }
        }
        for (owner, count) in &mut tally.owners {
            // The next pods of this owner belong to another gang: only the existing ones count.
            let template_gang = elastic_state.reading(owner).and_then(|reading| reading.gang.as_ref());
            if template_gang.is_some_and(|gang| *gang != self.id) {
                count.wants = count.live;
            }
        }
        for (owner, reading) in elastic_state.owners_without_pods(&self.id) {
            tally
                .owners
                .entry(owner.clone())
                .or_insert_with(|| OwnerCount { wants: reading.desired_pods, ..OwnerCount::default() });
        }
        tally.surplus = surplus_sentence(elastic_state, &pods_by_owner).or_else(|| orphan_sentence(orphans));
        tally
    }
}

/// The sentence about the first owner that has more pods than it wants.
fn surplus_sentence(
    elastic_state: &ElasticState,
    pods_by_owner: &BTreeMap<&ObjectRef, u32>,
) -> Option<String> {
    pods_by_owner.iter().find_map(|(owner, pods)| {
        let wants = elastic_state.reading(owner)?.desired_pods;
        (*pods > wants).then(|| {
            format!(
                "{} {} has {pods} pods and wants {wants}: its controller will delete some",
                owner.kind, owner.name
            )
        })
    })
}

/// The sentence about pods whose owner is deleted.
fn orphan_sentence(orphans: u32) -> Option<String> {
    let pods = portcullis_text::counted(orphans, "pod is", "pods are");
    let them = if orphans == 1 { "it" } else { "them" };
    (orphans > 0).then(|| format!("the owner of {pods} deleted: Kubernetes will delete {them}"))
}
