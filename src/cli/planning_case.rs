//! `portcullis simulate --case`: plans the case of a refuted plan again.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use portcullis_core::planner::{PlanningCase, PlanningOutcome};

use super::exit_status::ExitStatus;
use super::styles;

/// Prints which rules the recorded plan breaks, and what this version plans.
pub(super) fn plan_again(path: &Path) -> Result<ExitStatus> {
    let file = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
    let case: PlanningCase =
        serde_json::from_str(&text).with_context(|| format!("{file} is not a planning case"))?;
    let mut out = anstream::stdout().lock();
    let (recorded, plan, report) = case.replay();
    let members: usize = case.gangs.iter().map(|gang| gang.members.len()).sum();
    writeln!(
        out,
        "{} {} nodes, {} pods, {members} members to place",
        styles::styled(styles::HEAD, "case"),
        case.nodes.len(),
        case.charges.len()
    )?;
    writeln!(out, "  the recorded plan breaks {} rules", recorded.len())?;
    for violation in &recorded {
        writeln!(out, "    {violation}")?;
    }
    if let Some(refuted) = &report.refuted {
        writeln!(out, "  this version makes a plan that breaks {} rules", refuted.violations.len())?;
        for violation in &refuted.violations {
            writeln!(out, "    {violation}")?;
        }
        return Ok(ExitStatus::Negative);
    }
    let placed: usize = plan.gangs.iter().map(|gang| gang.assignments.len()).sum();
    writeln!(out, "  this version places {placed} of {members} members, and the plan passes the check")?;
    for (gang, outcome) in &report.outcomes {
        if let PlanningOutcome::Waiting(why) = outcome {
            writeln!(out, "    gang {gang} waits: {}", why.message)?;
        }
    }
    Ok(ExitStatus::Success)
}
