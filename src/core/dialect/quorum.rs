//! When a gang is complete: so many members, or so many complete subgroups, nested.
//!
//! Members are counted by role: the subgroup a pod names, `None` where it names none. In a tree of subgroups pods
//! without a name belong to the subgroup `default`, as in KAI; members of a role that is no leaf count for nothing.

use std::collections::BTreeMap;

use crate::model::{Str, str};
use crate::objects::names;

/// When a gang is complete.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quorum {
    /// So many members. At the top whoever they are; within [`Quorum::Groups`] those of that subgroup.
    Count(u32),
    /// A tree of subgroups: at least `min` of `children` must have their quorum.
    Groups {
        /// How many of the children.
        min: u32,
        /// By name; names are unique in the whole tree.
        children: BTreeMap<Str, Quorum>,
    },
    /// So many members whoever they are, and what the subgroups ask for. Stands at the top only.
    Total {
        /// How many in all.
        least: u32,
        /// The subgroups.
        quorum: Box<Quorum>,
    },
}

impl Quorum {
    /// Whether members so many by role make the gang complete.
    pub fn satisfied(&self, counts: &BTreeMap<Option<Str>, u32>) -> bool {
        match self {
            Self::Count(min) => total(counts) >= u64::from(*min),
            Self::Groups { min, children } => {
                let complete = children.iter().filter(|(name, child)| child.satisfied_in(name, counts));
                at_least(complete.count(), *min)
            }
            Self::Total { least, quorum } => total(counts) >= u64::from(*least) && quorum.satisfied(counts),
        }
    }

    fn satisfied_in(&self, name: &str, counts: &BTreeMap<Option<Str>, u32>) -> bool {
        match self {
            Self::Count(min) => members_of(name, counts) >= u64::from(*min),
            Self::Groups { .. } | Self::Total { .. } => self.satisfied(counts),
        }
    }

    /// What so many members by role are to be planned for. A launcher takes nobody's place: where the others are enough by
    /// themselves, only they count; where it is needed to make up the number, it counts like everybody.
    #[must_use]
    pub fn without_launcher(&self, counts: &BTreeMap<Option<Str>, u32>) -> Self {
        let launches = |role: &Option<Str>| role.as_deref() == Some(names::MPI_LAUNCHER);
        let others = || counts.iter().filter(|(role, _)| !launches(role));
        match self {
            // Nobody else names a role there.
            Self::Count(least)
                if counts.keys().any(launches)
                    && others().all(|(role, _)| role.is_none())
                    && others().map(|(_, number)| u64::from(*number)).sum::<u64>() >= u64::from(*least) =>
            {
                let others = (str(names::KAI_DEFAULT_SUBGROUP), Self::Count(*least));
                Self::Groups { min: 1, children: [others].into() }
            }
            quorum => quorum.clone(),
        }
    }

    /// The smallest number of members that can be complete. Where more subgroups are asked for than there are, which
    /// nobody can satisfy, what all of them together need.
    pub fn least(&self) -> u32 {
        match self {
            Self::Count(min) => *min,
            Self::Groups { min, children } => {
                let mut least: Vec<_> = children.values().map(Self::least).collect();
                least.sort_unstable();
                least
                    .iter()
                    .take(usize::try_from(*min).unwrap_or(usize::MAX))
                    .fold(0, |sum, n| sum.saturating_add(*n))
            }
            Self::Total { least, quorum } => quorum.least().max(*least),
        }
    }

    /// What is missing, to be put after "waiting for": `2 more pods`, or `subgroup workers (1 of 3 pods) and subgroup ps
    /// (0 of 1 pods)`. Empty when nothing is.
    pub fn missing(&self, counts: &BTreeMap<Option<Str>, u32>) -> String {
        if self.satisfied(counts) {
            return String::new();
        }
        match self {
            Self::Count(min) => {
                let missing = u64::from(*min) - total(counts);
                format!("{missing} more {}", if missing == 1 { "pod" } else { "pods" })
            }
            Self::Groups { min, children } => missing_groups(*min, children, counts),
            Self::Total { least, quorum } => {
                let all = Self::Count(*least).missing(counts);
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
        children.iter().filter(|(name, child)| !child.satisfied_in(name, counts)).collect();
    let each = incomplete.iter().map(|(name, child)| match child {
        Quorum::Count(least) => format!("subgroup {name} ({} of {least} pods)", members_of(name, counts)),
        Quorum::Groups { min, children } => {
            format!("subgroup {name} (in it {})", missing_groups(*min, children, counts))
        }
        Quorum::Total { .. } => format!("subgroup {name} (in it {})", child.missing(counts)),
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
    fn a_launcher_takes_no_place_of_a_worker() {
        let check = |members: &[(&str, u32)], placed: &[(&str, u32)], starts: bool| {
            let planned = Quorum::Count(8).without_launcher(&counts(members));
            assert_eq!(planned.satisfied(&counts(placed)), starts, "{members:?} {placed:?}");
        };
        let all = [("", 8), ("launcher", 1)];
        check(&all, &all, true);
        check(&all, &[("", 8)], true);
        check(&all, &[("", 7), ("launcher", 1)], false);
        check(&all, &[("launcher", 1)], false);
        // Where there are seven workers and no more it is one of eight.
        check(&[("", 7), ("launcher", 1)], &[("", 7), ("launcher", 1)], true);
        check(&[("", 9)], &[("", 8)], true);
        // Roles of others are what they are.
        check(&[("a", 8), ("launcher", 1)], &[("a", 7), ("launcher", 1)], true);
        let tree = groups(1, &[("launcher", Quorum::Count(1))]);
        assert_eq!(tree.without_launcher(&counts(&all)), tree);
    }

    #[test]
    fn a_quorum_says_whether_it_is_met_and_what_is_missing() {
        let check = |quorum: &Quorum, members: &[(&str, u32)], missing: &str| {
            let counts = counts(members);
            assert_eq!(quorum.missing(&counts), missing, "{quorum:?} {members:?}");
            assert_eq!(quorum.satisfied(&counts), missing.is_empty(), "{quorum:?} {members:?}");
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
        check(&nested, &[("ps", 1), ("left", 5)], "subgroup left (in it subgroup workers (0 of 2 pods))");

        let both = |least| Quorum::Total {
            least,
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
    fn least_is_the_cheapest_way_to_be_complete() {
        for (quorum, least) in [
            (Quorum::Count(3), 3),
            (groups(1, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]), 2),
            (groups(2, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]), 6),
            (groups(0, &[("a", Quorum::Count(4))]), 0),
            (groups(5, &[("a", Quorum::Count(4)), ("b", Quorum::Count(2))]), 6),
            (Quorum::Total { least: 9, quorum: Box::new(groups(1, &[("a", Quorum::Count(4))])) }, 9),
            (Quorum::Total { least: 3, quorum: Box::new(groups(1, &[("a", Quorum::Count(4))])) }, 4),
            (groups(2, &[("a", Quorum::Count(u32::MAX)), ("b", Quorum::Count(2))]), u32::MAX),
        ] {
            assert_eq!(quorum.least(), least, "{quorum:?}");
        }
    }
}
