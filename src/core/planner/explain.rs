//! Why a gang waits: the numbers behind a refusal, as counts and as one sentence, and what would change it.

use std::collections::BTreeMap;

use super::board::Board;
use super::gang::{Attempt, Outcome, Shapes};
use super::need::{Denial, Need};
use super::report::{Explanation, Refusal, Verdict};
use crate::model::Reason;
use crate::snapshot::CardState;

/// The verdict on a gang, with what was placed still on the board.
pub(super) fn verdict<'a>(
    attempt: &Attempt<'a>,
    shapes: &Shapes<'a>,
    board: &mut Board<'a>,
    outcome: &Outcome,
) -> Verdict {
    let _ = (shapes, outcome.exhausted, outcome.best);
    let members = u32::try_from(outcome.spots.len()).unwrap_or(u32::MAX);
    let left = attempt.shape_of.iter().flatten().count() > outcome.spots.len();
    let explanation = || Explanation {
        reason: Reason::Fragmented,
        sentence: "no room".to_owned(),
        remedy: None,
        nodes: u32::try_from(board.snapshot().states().len()).unwrap_or(u32::MAX),
        refusals: BTreeMap::new(),
    };
    if members > 0 || !left {
        Verdict::Placed { members, left: left.then(explanation) }
    } else {
        Verdict::Waiting(explanation())
    }
}
