//! When a gang is complete: a number of members, or a tree of subgroups.
//!
//! Members are counted by role. The role is the subgroup that a pod names, or `None` where it names none. In
//! a tree of subgroups, pods without a role belong to the subgroup `default`, as in KAI. Members with a role
//! that is not a leaf of the tree do not count.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::model::{Str, str};
use crate::objects::names;

/// When a gang is complete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Quorum {
    /// A number of members: of any role at the top, of the subgroup within [`Quorum::Groups`].
    Count(u32),
    /// A tree of subgroups: at least `min` of `children` must be complete.
    Groups {
        /// Number of children that must be complete.
        min: u32,
        /// Quorum of each child by name. Names are unique in the whole tree.
        children: BTreeMap<Str, Quorum>,
    },
    /// A number of members of any role, and the quorum of the subgroups. Only at the top.
    Total {
        /// Number of members in total.
        min_members: u32,
        /// The subgroups.
        quorum: Box<Quorum>,
    },
}

impl Quorum {
    /// Whether the gang is complete with these numbers of members by role.
    pub fn is_satisfied(&self, counts: &BTreeMap<Option<Str>, u32>) -> bool {
        match self {
            Self::Count(min) => total(counts) >= u64::from(*min),
            Self::Groups { min, children } => {
                let complete = children.iter().filter(|(name, child)| child.is_satisfied_in(name, counts));
                at_least(complete.count(), *min)
            }
            Self::Total { min_members, quorum } => {
                total(counts) >= u64::from(*min_members) && quorum.is_satisfied(counts)
            }
        }
    }

    fn is_satisfied_in(&self, name: &str, counts: &BTreeMap<Option<Str>, u32>) -> bool {
        match self {
            Self::Count(min) => members_of(name, counts) >= u64::from(*min),
            Self::Groups { .. } | Self::Total { .. } => self.is_satisfied(counts),
        }
    }

    /// The quorum to plan for. An MPI launcher does not count as a worker: where the other members are
    /// enough, only they count. Where the launcher is needed to reach the number, it counts like any member.
    #[must_use]
    pub fn without_launcher(&self, counts: &BTreeMap<Option<Str>, u32>) -> Self {
        let is_launcher = |role: &Option<Str>| role.as_deref() == Some(names::MPI_LAUNCHER);
        let others = || counts.iter().filter(|(role, _)| !is_launcher(role));
        match self {
            // Only where no other member has a role.
            Self::Count(min_members)
                if counts.keys().any(is_launcher)
                    && others().all(|(role, _)| role.is_none())
                    && others().map(|(_, number)| u64::from(*number)).sum::<u64>()
                        >= u64::from(*min_members) =>
            {
                let others = (str(names::KAI_DEFAULT_SUBGROUP), Self::Count(*min_members));
                Self::Groups { min: 1, children: [others].into() }
            }
            quorum => quorum.clone(),
        }
    }

    /// The smallest number of members that can be complete. A tree that requires more subgroups than it has
    /// can never be complete; then this is the sum of all subgroups.
    pub fn min_members(&self) -> u32 {
        match self {
            Self::Count(min) => *min,
            Self::Groups { min, children } => {
                let mut min_members: Vec<_> = children.values().map(Self::min_members).collect();
                min_members.sort_unstable();
                min_members
                    .iter()
                    .take(usize::try_from(*min).unwrap_or(usize::MAX))
                    .fold(0, |sum, n| sum.saturating_add(*n))
            }
            Self::Total { min_members, quorum } => quorum.min_members().max(*min_members),
        }
    }

    /// The missing members, as a phrase after "waiting for": `2 more pods`, or `subgroup workers (1 of 3
    /// pods) and subgroup ps (0 of 1 pods)`. Empty when the gang is complete.
    pub fn missing(&self, counts: &BTreeMap<Option<Str>, u32>) -> String {
        if self.is_satisfied(counts) {
            return String::new();
        }
        match self {
            Self::Count(min) => {
                let missing = u64::from(*min) - total(counts);
                format!("{missing} more {}", if missing == 1 { "pod" } else { "pods" })
            }
            Self::Groups { min, children } => missing_groups(*min, children, counts),
            Self::Total { min_members, quorum } => {
                let all = Self::Count(*min_members).missing(counts);
                let groups = quorum.missing(counts);
                let both = [all, groups].into_iter().filter(|part| !part.is_empty());
                both.collect::<Vec<_>>().join(" and ")
            }
        }
    }
}

fn missing_groups(min: u32, children: &BTreeMap<Str, Quorum>, counts: &BTreeMap<Option<Str>, u32>) -> String {
    if !at_least(children.len(), min) {
        return format!("{min} subgroups where only {} exist, so it can never be complete", children.len());
    }
    let incomplete: Vec<_> =
        children.iter().filter(|(name, child)| !child.is_satisfied_in(name, counts)).collect();
    let each = incomplete.iter().map(|(name, child)| match child {
        Quorum::Count(min_members) => {
            format!("subgroup {name} ({} of {min_members} pods)", members_of(name, counts))
        }
        Quorum::Groups { min, children } => {
            format!("subgroup {name} (which needs {})", missing_groups(*min, children, counts))
        }
        Quorum::Total { .. } => format!("subgroup {name} (which needs {})", child.missing(counts)),
    });
    let all = each.collect::<Vec<_>>();
    let needed = usize::try_from(min).unwrap_or(usize::MAX).saturating_sub(children.len() - incomplete.len());
    if needed == incomplete.len() {
        all.join(" and ")
    } else {
        format!("{needed} of these: {}", all.join(", "))
    }
}

fn at_least(count: usize, min: u32) -> bool {
    u64::try_from(count).is_ok_and(|count| count >= u64::from(min))
}

fn total(counts: &BTreeMap<Option<Str>, u32>) -> u64 {
    counts.values().map(|n| u64::from(*n)).sum()
}

fn members_of(name: &str, counts: &BTreeMap<Option<Str>, u32>) -> u64 {
    let of = |role: &Option<Str>| role.as_deref().unwrap_or(names::KAI_DEFAULT_SUBGROUP) == name;
    counts.iter().filter(|(role, _)| of(role)).map(|(_, n)| u64::from(*n)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u32)]) -> BTreeMap<Option<Str>, u32> {
        of.iter().map(|(role, n)| ((!role.is_empty()).then(|| str(role)), *n)).collect()
    }

    fn groups(min: u32, children: &[(&str, Quorum)]) -> Quorum {
        Quorum::Groups { min, children: children.iter().map(|(n, q)| (str(n), q.clone())).collect() }
    }

    #[test]
    fn a_launcher_does_not_count_as_a_worker() {
        let check = |members: &[(&str, u32)], placed: &[(&str, u32)], starts: bool| {
            let planned = Quorum::Count(8).without_launcher(&counts(members));
            assert_eq!(planned.is_satisfied(&counts(placed)), starts, "{members:?} {placed:?}");
        };
        let all = [("", 8), ("launcher", 1)];
        check(&all, &all, true);
        check(&all, &[("", 8)], true);
        check(&all, &[("", 7), ("launcher", 1)], false);
        check(&all, &[("launcher", 1)], false);
        // With seven workers the launcher is the eighth member.
        check(&[("", 7), ("launcher", 1)], &[("", 7), ("launcher", 1)], true);
        check(&[("", 9)], &[("", 8)], true);
        // A launcher among members with other roles counts like any member.
        check(&[("a", 8), ("launcher", 1)], &[("a", 7), ("launcher", 1)], true);
        let tree = groups(1, &[("launcher", Quorum::Count(1))]);
        assert_eq!(tree.without_launcher(&counts(&all)), tree);
    }

    #[test]
    fn a_quorum_reports_what_is_missing() {
        let check = |quorum: &Quorum, members: &[(&str, u32)], missing: &str| {
            let counts = counts(members);
            assert_eq!(quorum.missing(&counts), missing, "{quorum:?} {members:?}");
            assert_eq!(quorum.is_satisfied(&counts), missing.is_empty(), "{quorum:?} {members:?}");
        };
        let three = Quorum::Count(3);
        check(&three, &[("", 3)], "");
        check(&three, &[("a", 2), ("b", 1)], "");
        check(&three, &[("", 2)], "1 more pod");
        check(&three, &[], "3 more pods");
        check(&Quorum::Count(0), &[], "");

        let flat = groups(2, &[("ps", Quorum::Count(1)), ("workers", Quorum::Count(2))]);
        check(&flat, &[("ps", 1), ("workers", 2)], "");
        check(&flat, &[("workers", 9)], "subgroup ps (0 of 1 pods)");
        check(&flat, &[("", 9)], "subgroup ps (0 of 1 pods) and subgroup workers (0 of 2 pods)");

        let any = groups(1, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]);
        check(&any, &[("b", 2)], "");
        check(&any, &[("b", 1)], "1 of these: subgroup a (0 of 4 pods), subgroup b (1 of 2 pods)");

        let unnamed = groups(1, &[("default", Quorum::Count(2))]);
        check(&unnamed, &[("", 1), ("default", 1)], "");
        check(&unnamed, &[("", 1)], "subgroup default (1 of 2 pods)");

        let nested = groups(2, &[("left", flat), ("right", Quorum::Count(0))]);
        check(&nested, &[("ps", 1), ("workers", 2)], "");
        check(
            &nested,
            &[("ps", 1), ("left", 5)],
            "subgroup left (which needs subgroup workers (0 of 2 pods))",
        );

        let both = |min_members| Quorum::Total {
            min_members,
            quorum: Box::new(groups(2, &[("ps", Quorum::Count(1)), ("workers", Quorum::Count(2))])),
        };
        check(&both(4), &[("ps", 1), ("workers", 3)], "");
        check(&both(4), &[("ps", 1), ("workers", 2)], "1 more pod");
        check(&both(4), &[("workers", 4)], "subgroup ps (0 of 1 pods)");
        check(&both(4), &[("workers", 3)], "1 more pod and subgroup ps (0 of 1 pods)");

        let absurd = groups(3, &[("a", Quorum::Count(1))]);
        check(&absurd, &[("a", 7)], "3 subgroups where only 1 exist, so it can never be complete");
    }

    #[test]
    fn min_members_is_the_size_of_the_smallest_complete_gang() {
        for (quorum, min_members) in [
            (Quorum::Count(3), 3),
            (groups(1, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]), 2),
            (groups(2, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]), 6),
            (groups(0, &[("a", Quorum::Count(4))]), 0),
            (groups(5, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]), 6),
            (Quorum::Total { min_members: 9, quorum: Box::new(groups(1, &[("a", Quorum::Count(4))])) }, 9),
            (Quorum::Total { min_members: 3, quorum: Box::new(groups(1, &[("a", Quorum::Count(4))])) }, 4),
            (groups(2, &[("a", Quorum::Count(u32::MAX)), ("b", Quorum::Count(2))]), u32::MAX),
        ] {
            assert_eq!(quorum.min_members(), min_members, "{quorum:?}");
        }
    }
}
