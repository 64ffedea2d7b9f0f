//! Where the members of a gang go, or why they cannot: snapshot in, plan and report out.

mod report;
mod types;

pub use report::{Explanation, Refusal, Report, Verdict};
pub use types::{GangRequest, Member, Placement, Plan, PlannedGang};

use crate::snapshot::Snapshot;

/// Plans the gangs in the order given; each sees what the ones before it were given.
#[must_use = "a plan that is dropped was made for nothing"]
pub fn plan(_snapshot: &Snapshot, _gangs: &[GangRequest]) -> (Plan, Report) {
    (Plan::default(), Report::default())
}

/// Proves a plan again, by other code than the planner's: all-or-none, nothing overbooked, every rule of placement kept.
///
/// # Errors
/// One sentence for each thing that is wrong.
pub fn check(_snapshot: &Snapshot, _gangs: &[GangRequest], _plan: &Plan) -> Result<(), Vec<String>> {
    Ok(())
}
