//! The state machine of the plan of one gang.
//!
//! ```text
//!             Record                         Confirm
//!  Undecided ----------------> Recording ----------------> Recorded
//!      ^                        |     ^                     |    |
//!      |        Abandon         |     |  Record, RecordAgain |    | Drop
//!      +------------------------+     +---------------------+    v
//!      +------------------------------------------------------ Dropping
//!                          Dropped
//! ```
//!
//! [`Progress::next`] decides every transition. `Gang::advance_plan` is the only code that assigns the new
//! state, and names what goes with it: charges, lift permits, planning.

use super::PlanRecord;
use crate::model::Str;

/// How far the plan of a gang is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Progress {
    /// The gang has no plan, or its plan has been carried out and given up.
    #[default]
    Undecided,
    /// The gang has a plan that is not known to be durable.
    Recording(PlanRecord),
    /// The plan is durable in the `Gang` object under the epoch of this engine. The engine carries it out, or
    /// has done so.
    Recorded(PlanRecord),
    /// The plan is durable, and the engine removes it from the `Gang` object for this reason. No member is
    /// lifted.
    Dropping(PlanRecord, Str),
}

/// Something that may change the plan of a gang.
#[derive(Debug)]
pub(in crate::engine) enum PlanInput<'a> {
    /// The planner placed members, or the engine amended the current plan.
    Planned(PlanRecord),
    /// The `Gang` object was read, with this plan in it.
    Stored(Option<&'a PlanRecord>),
    /// No member is lifted, and the plan cannot be carried out any more.
    Infeasible {
        /// The reason, for the status of the gang.
        why: Str,
        /// A write of the `Gang` object has no answer yet.
        write_pending: bool,
    },
    /// No member is lifted, and a durable status says that members of the plan have expired.
    Expired,
    /// The `Gang` object and all members of a gang with reservations are gone.
    Ended,
}

/// What happens to the plan of a gang.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) enum Transition {
    /// Nothing changes.
    Stay,
    /// To `Recording`: a new plan, or an amended one, has to become durable.
    Record(PlanRecord),
    /// `Recording` to `Recorded`: the stored object contains the plan.
    Confirm(PlanRecord),
    /// `Recorded` to `Recording`: the object, or the plan in it, is gone and has to become durable again.
    RecordAgain(PlanRecord),
    /// `Recorded` to `Dropping`: the plan cannot be carried out, and no member is lifted.
    Drop(PlanRecord, Str),
    /// To `Undecided` from a plan that is not durable. The next write replaces a write that is still on its
    /// way.
    Abandon,
    /// `Dropping` to `Undecided`: the stored object contains the plan no more.
    Dropped,
}

impl Progress {
    /// The plan whose members are charged to their nodes.
    pub(in crate::engine) fn plan(&self) -> Option<&PlanRecord> {
        match self {
            Self::Undecided => None,
            Self::Recording(plan) | Self::Recorded(plan) | Self::Dropping(plan, _) => Some(plan),
        }
    }

    /// The transition that follows from an input. Each arm is one arrow of the diagram above.
    pub(in crate::engine) fn next(&self, input: PlanInput<'_>) -> Transition {
        match (self, input) {
            (_, PlanInput::Planned(plan)) => Transition::Record(plan),
            (Self::Recording(plan), PlanInput::Stored(Some(stored))) if plan == stored => {
                Transition::Confirm(plan.clone())
            }
            (Self::Recorded(plan), PlanInput::Stored(stored)) if Some(plan) != stored => {
                Transition::RecordAgain(plan.clone())
            }
            (Self::Dropping(plan, _), PlanInput::Stored(stored)) if Some(plan) != stored => {
                Transition::Dropped
            }
            (Self::Recording(_), PlanInput::Infeasible { write_pending: false, .. }) => Transition::Abandon,
            (Self::Recorded(plan), PlanInput::Infeasible { why, .. }) => Transition::Drop(plan.clone(), why),
            (Self::Recording(_), PlanInput::Expired) | (_, PlanInput::Ended) => Transition::Abandon,
            (
                Self::Undecided | Self::Recording(_) | Self::Recorded(_) | Self::Dropping(..),
                PlanInput::Stored(_) | PlanInput::Infeasible { .. } | PlanInput::Expired,
            ) => Transition::Stay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Epoch, str};

    /// Every state with every input: the table of the diagram.
    #[test]
    fn each_input_leads_to_the_transition_of_the_diagram() {
        let plan = |epoch| PlanRecord { epoch: Epoch(epoch), ..PlanRecord::default() };
        let (mine, other) = (plan(1), plan(2));
        let states = || {
            [
                Progress::Undecided,
                Progress::Recording(plan(1)),
                Progress::Recorded(plan(1)),
                Progress::Dropping(plan(1), str("node n is gone")),
            ]
        };
        let check = |input: &dyn Fn() -> PlanInput<'static>, expected: [Transition; 4]| {
            for (state, expected) in states().into_iter().zip(expected) {
                assert_eq!(state.next(input()), expected, "{state:?} with {:?}", input());
            }
        };
        let (mine, other): (&'static PlanRecord, &'static PlanRecord) =
            (Box::leak(Box::new(mine)), Box::leak(Box::new(other)));
        let record = || Transition::Record(plan(2));
        check(&|| PlanInput::Planned(plan(2)), [record(), record(), record(), record()]);
        let stay = || Transition::Stay;
        check(&|| PlanInput::Stored(Some(mine)), [stay(), Transition::Confirm(plan(1)), stay(), stay()]);
        let again = || Transition::RecordAgain(plan(1));
        check(&|| PlanInput::Stored(Some(other)), [stay(), stay(), again(), Transition::Dropped]);
        check(&|| PlanInput::Stored(None), [stay(), stay(), again(), Transition::Dropped]);
        let infeasible = |write_pending| PlanInput::Infeasible { why: str("node n is gone"), write_pending };
        let drop = || Transition::Drop(plan(1), str("node n is gone"));
        check(&|| infeasible(false), [stay(), Transition::Abandon, drop(), stay()]);
        check(&|| infeasible(true), [stay(), stay(), drop(), stay()]);
        check(&|| PlanInput::Expired, [stay(), Transition::Abandon, stay(), stay()]);
        let abandon = || Transition::Abandon;
        check(&|| PlanInput::Ended, [abandon(), abandon(), abandon(), abandon()]);
    }
}
