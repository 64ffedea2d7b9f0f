//! The work budget of one admission request on the webhook's fast lane.

use std::cell::Cell;

use portcullis_cel::{Activation, Budget, Error, Program, Value};

/// The cost and work, in the units of [`Budget`], that remain for one request over all policies.
///
/// It does not limit what policies may do; the API server's budgets do. A result that was computed with an
/// exhausted work budget must be discarded, and the webhook evaluates the request again on the slow lane.
#[derive(Debug)]
pub struct WorkBudget {
    left: Cell<u64>,
}

impl WorkBudget {
    /// Budget of the fast lane, in the units of [`Budget`]. It is twenty times what twenty typical policies
    /// need, and takes one core about a millisecond.
    const FAST_LANE_UNITS: u64 = 20_000;

    /// Returns a budget that never ends before the policies' own budgets.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { left: Cell::new(u64::MAX) }
    }

    /// Returns the budget of the fast lane, which keeps the wait of the next request short.
    #[must_use]
    pub fn fast_lane() -> Self {
        Self { left: Cell::new(Self::FAST_LANE_UNITS) }
    }

    /// Whether the budget was too small. All results so far must then be discarded.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// Consumes units for work outside of expressions.
    pub(crate) fn consume(&self, units: u64) {
        if self.left.get() < u64::MAX {
            self.left.set(self.left.get().saturating_sub(units));
        }
    }

    /// Evaluates a program within the policy's budget and the remaining work budget.
    pub(crate) fn evaluate<'a>(
        &self,
        program: &'a Program,
        activation: &Activation<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, Error> {
        let before = budget.used();
        budget.allow(self.left.get());
        let result = program.eval(activation, budget);
        self.consume(budget.used() - before);
        result
    }
}
