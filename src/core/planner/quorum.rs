//! Whether so many members of each role make a gang complete.

use std::collections::BTreeMap;

use crate::dialect::Quorum;
use crate::model::Str;
use crate::objects::names;

/// Members by role.
pub(super) type Counts = BTreeMap<Option<Str>, u32>;

/// Whether `counts` meet the quorum. A plain count at the top counts everybody; below it, the members of its subgroup,
/// and pods that name no subgroup belong to the one called `default`.
pub(super) fn met(quorum: &Quorum, counts: &Counts) -> bool {
    match quorum {
        Quorum::Count(least) => counts.values().map(|n| u64::from(*n)).sum::<u64>() >= u64::from(*least),
        Quorum::Groups { min, children } => groups_met(*min, children, counts),
    }
}

fn groups_met(min: u32, children: &BTreeMap<Str, Quorum>, counts: &Counts) -> bool {
    let met = children.iter().filter(|(name, child)| match child {
        Quorum::Count(least) => members_of(name, counts) >= u64::from(*least),
        Quorum::Groups { min, children } => groups_met(*min, children, counts),
    });
    met.count() >= min as usize
}

fn members_of(name: &Str, counts: &Counts) -> u64 {
    let named = counts.get(&Some(name.clone())).copied().unwrap_or(0);
    let unnamed =
        if &**name == names::KAI_DEFAULT_SUBGROUP { counts.get(&None).copied().unwrap_or(0) } else { 0 };
    u64::from(named) + u64::from(unnamed)
}
