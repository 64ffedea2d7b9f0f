//! How much work a request may make before it is given up, to be asked about again where nobody waits behind it.

use std::cell::Cell;

use portcullis_cel::{Activation, Budget, Error, Program, Value};

/// The cost and the work, in the units of [`Budget`], that are left for one request over all policies.
///
/// Not a limit of what policies may do, which the API server's budgets are: an outcome that was reached with too little is no outcome.
#[derive(Debug)]
pub struct WorkBudget {
    left: Cell<u64>,
}

impl WorkBudget {
    /// Twenty times what twenty policies as teams write them need, and a core does in a millisecond.
    const FAST_LANE_UNITS: u64 = 20_000;

    /// As much as the policies' own budgets.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { left: Cell::new(u64::MAX) }
    }

    /// So much that whoever comes next need not wait long.
    #[must_use]
    pub fn fast_lane() -> Self {
        Self { left: Cell::new(Self::FAST_LANE_UNITS) }
    }

    /// Whether it did not suffice. What was found out until then says nothing.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// Counts work that is no evaluation.
    pub(crate) fn consume(&self, units: u64) {
        if self.left.get() < u64::MAX {
            self.left.set(self.left.get().saturating_sub(units));
        }
    }

    /// Evaluates a program within a budget and what is left.
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
