//! The status of a gang without a plan.

use crate::dialect;
use crate::engine::members::MemberCounts;
use crate::engine::protocol::{GangStatus, Phase};
use crate::engine::state::{EngineView, Gang, RefusedLift};
use crate::model::Reason;

impl Gang {
    /// Fills in a gang without a plan.
    pub(super) fn fill_undecided(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
        stored: &GangStatus,
        wanted: &mut GangStatus,
    ) {
        let Some(group) = self.group(view) else { return self.fill_unknown(view, counts, wanted) };
        let scales_up = counts.started() > 0 && self.is_scaling_up();
        let whole = counts.ready.is_empty() && counts.started() > 0 && counts.started_satisfy(&group.quorum);
        if scales_up || whole {
            wanted.phase = Phase::Admitted;
            wanted.reason = Some(Reason::Admitted);
            wanted.message = format!("{} of {} members are bound", counts.bound, counts.live);
            wanted.plan.clone_from(&stored.plan);
            self.fill_waiting_members(view, counts, wanted);
        } else if counts.present_satisfy(&group.quorum) || self.is_complete_with_placeholders(view, counts) {
            self.fill_waiting(view, counts, group.quorum.min_members(), wanted);
        } else {
            self.fill_gathering(view, counts, wanted);
        }
    }

    /// Fills in a gang without a known size.
    fn fill_unknown(&self, view: &EngineView<'_>, counts: &MemberCounts, wanted: &mut GangStatus) {
        wanted.phase = Phase::Gathering;
        if let Some(problem) = self.disagreement(view) {
            wanted.reason = Some(Reason::MembersDisagree);
            wanted.message = problem.to_string();
            "its pods to agree".clone_into(&mut wanted.waiting_for);
            return;
        }
        wanted.reason = Some(Reason::GroupNotFound);
        let (id, dialect) = (&self.id, self.id.dialect);
        let count = portcullis_text::counted(counts.live, "pod names", "pods name");
        let declared =
            dialect::size_key(dialect).map(|key| format!("one of them declares the size with {key}"));
        wanted.message = if dialect::has_group_objects(dialect) {
            let or = declared.map(|declared| format!(", or {declared}")).unwrap_or_default();
            format!("{count} the group {id}, which does not exist; they start when it does{or}")
        } else {
            let when = declared.unwrap_or_else(|| "one of them declares the size".to_owned());
            format!(
                "{count} the gang {id}, and none declares how many members it needs; they start when {when}"
            )
        };
        wanted.waiting_for = format!("group {}", id.name);
    }

    /// Fills in a gang that lacks members.
    fn fill_gathering(&self, view: &EngineView<'_>, counts: &MemberCounts, wanted: &mut GangStatus) {
        wanted.phase = Phase::Gathering;
        let Some(group) = self.group(view) else { return };
        let (here, least) = (counts.present(), group.quorum.min_members());
        if let Some((pod, gate)) = counts.held.first() {
            wanted.reason = Some(Reason::ForeignGate);
            wanted.waiting_for = format!("gate {gate} of pod {pod}");
            wanted.message = format!(
                "{here} of {least} members are ready; pod {pod} is held by the scheduling gate {gate}, which another controller has to remove"
            );
            return;
        }
        wanted.reason = Some(Reason::Gathering);
        let missing = group.quorum.missing(&counts.present_by_role());
        wanted.message = format!("{here} of {least} members are here; waiting for {missing}");
        if let Some(never) = self.owners_below_min_member(view, counts) {
            wanted.message = format!("{}; {never}", wanted.message);
        }
        if here == 1 && self.is_replica_of_unknown_set(view) {
            wanted.message.push_str(
                " (no capacity can be reserved for workers that are created later: no LeaderWorkerSet of its name is known)",
            );
        }
        wanted.waiting_for = missing;
    }

    /// Fills in a complete gang that waits for nodes.
    fn fill_waiting(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
        least: u32,
        wanted: &mut GangStatus,
    ) {
        wanted.phase = Phase::Waiting;
        if let Some(refused) = &self.lifecycle.refused_lift {
            fill_refused(refused, wanted);
        } else if let Some(waiting) = &self.queueing.wait_reason {
            wanted.reason = Some(waiting.reason);
            wanted.message.clone_from(&waiting.message);
            wanted.waiting_for.clone_from(&waiting.waiting_for);
            wanted.remedy.clone_from(&waiting.remedy);
            wanted.position = self.queueing.rank.as_ref().map(|rank| view.queue.position(rank));
        } else {
            self.fill_queued(view, counts, least, wanted);
        }
        if view.head_of_line == Some(&self.id) {
            wanted.message = format!("{}; capacity is reserved for it as it becomes free", wanted.message);
        }
        if let Some(expired) = self.timeout_message(view) {
            wanted.reason = Some(Reason::SchedulingTimeout);
            wanted.message = format!("{expired}; {}", wanted.message);
        }
    }

    /// Fills in a complete gang that was not planned yet.
    fn fill_queued(&self, view: &EngineView<'_>, counts: &MemberCounts, least: u32, wanted: &mut GangStatus) {
        wanted.reason = Some(Reason::Queued);
        let owners = self.owners_unknown_reason(view, counts);
        wanted.waiting_for = if owners.is_some() { "the owners of its pods" } else { "its turn" }.to_owned();
        let why = owners.unwrap_or_else(|| "not planned yet".to_owned());
        let here = counts.present();
        wanted.message = if here < least {
            format!("{here} of {least} members exist, and the missing ones are known; {why}")
        } else {
            format!("all {least} members are here; {why}")
        };
    }
}

/// Fills in a gang that was not lifted, because the API server refuses the lift of a member.
pub(super) fn fill_refused(refused: &RefusedLift, wanted: &mut GangStatus) {
    let RefusedLift { pod, refusal } = refused;
    wanted.phase = Phase::Waiting;
    wanted.reason = Some(Reason::LiftRefused);
    wanted.message = format!(
        "no member was lifted: the API server refuses the patch that removes the gate of pod {pod} ({refusal})"
    );
    wanted.waiting_for = format!("the lift of {pod} to be allowed");
    wanted.remedy = Some(format!(
        "change the policy, webhook or limit that the message names, so that it allows the patch, or replace pod {pod}; the gang is tried again within 5 minutes, or at once after a change of its pods"
    ));
}
