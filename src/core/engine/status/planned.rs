//! The status of a gang with a plan.

use crate::engine::members::MemberCounts;
use crate::engine::members::placeholders::{placeholders_summary, pods_to_create};
use crate::engine::protocol::{GangStatus, Phase, PlanRecord};
use crate::engine::state::{EngineView, Gang};
use crate::engine::status::sentences::{placed, places, shorten};
use crate::model::Reason;

impl Gang {
    /// Fills in a gang whose plan is not durable yet.
    pub(super) fn fill_recording(
        &self,
        view: &EngineView<'_>,
        plan: &PlanRecord,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        if !plan.placeholders.is_empty() && self.has_started(plan) {
            return self.fill_reserved(view, plan, counts, wanted);
        }
        wanted.phase = Phase::Planned;
        wanted.reason = Some(Reason::Planned);
        wanted.message = format!("{} placed: {}", placed(plan.members.len(), counts), places(plan));
        if !plan.placeholders.is_empty() {
            let reserved = placeholders_summary(&plan.placeholders);
            wanted.message = format!("{}; capacity reserved for {reserved}", wanted.message);
        }
        wanted.plan = Some(plan.clone());
    }

    /// Whether no member of a durable plan is lifted yet.
    pub(super) fn is_untouched(&self, plan: &PlanRecord) -> bool {
        !self.has_started(plan) && self.has_gated(plan)
    }

    /// Fills in a gang whose plan is durable and is being carried out, or has been.
    pub(super) fn fill_recorded(
        &self,
        view: &EngineView<'_>,
        plan: &PlanRecord,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        let unbound = self.unbound_sentences(view, plan);
        let in_time = view.now <= plan.deadline;
        if !plan.placeholders.is_empty() && (in_time || unbound.is_empty()) && self.has_started(plan) {
            return self.fill_reserved(view, plan, counts, wanted);
        }
        if !self.has_gated(plan) && unbound.is_empty() {
            return self.fill_bound(view, plan, counts, wanted);
        }
        wanted.plan = Some(plan.clone());
        if in_time {
            wanted.phase = Phase::Lifting;
            wanted.reason = Some(Reason::Lifting);
            let of = plan.members.len();
            let gated = self.present(plan).filter(|(_, member)| member.pod.gated()).count();
            let (lifted, bound) = (of - gated, counts.bound);
            wanted.message = format!("{lifted} of {of} lifted, {bound} bound: {}", places(plan));
            let refused = self.refused_sentences(plan);
            if !refused.is_empty() {
                wanted.message = format!("{lifted} of {of} lifted, {bound} bound; {}", refused.join("; "));
            }
            return;
        }
        wanted.phase = Phase::Torn;
        wanted.reason = Some(Reason::Torn);
        let mut lines = unbound;
        lines.extend(self.record.api_error.iter().map(|error| format!("not lifted yet: {error}")));
        if lines.is_empty() {
            lines.push("some members are not lifted yet".to_owned());
        }
        wanted.waiting_for = self.members_to_bind(plan);
        lines.extend(self.torn_outlook(view));
        wanted.message = format!("past its deadline of {}: {}", plan.deadline, shorten(&lines, "; "));
    }

    /// The planned pods that are not bound, in a few words.
    fn members_to_bind(&self, plan: &PlanRecord) -> String {
        let waiting = self.present(plan).filter(|(_, member)| member.pod.gated() || member.unbound());
        let mut names = waiting.map(|(planned, _)| &planned.pod);
        match (names.next(), names.count()) {
            (None, _) => String::new(),
            (Some(first), 0) => format!("{first} to be bound"),
            (Some(first), more) => format!("{first} and {more} more to be bound"),
        }
    }

    /// Fills in a gang with placeholders.
    fn fill_reserved(
        &self,
        view: &EngineView<'_>,
        plan: &PlanRecord,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        wanted.phase = Phase::Lifting;
        wanted.reason = Some(Reason::Reserved);
        (wanted.message, wanted.waiting_for) = self.placeholder_summary(view, plan, counts);
        wanted.plan = Some(plan.clone());
        // A member without a placeholder is planned alone.
        if let Some(waiting) = &self.queueing.wait_reason {
            wanted.message = format!("{}; one more waits: {}", wanted.message, waiting.message);
            wanted.remedy.clone_from(&waiting.remedy);
        }
    }

    /// Fills in a gang whose plan is bound. It may be torn if the plan had to leave members out.
    fn fill_bound(
        &self,
        view: &EngineView<'_>,
        plan: &PlanRecord,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        let met = self.group(view).is_none_or(|group| counts.started_satisfy(&group.quorum));
        let retried = self.lifecycle.torn.is_some();
        let torn =
            retried || (!met && (!counts.ready.is_empty() || plan.released > 0) && !self.is_scaling_up());
        wanted.phase = if torn { Phase::Torn } else { Phase::Admitted };
        wanted.reason = Some(if torn { Reason::Torn } else { Reason::Admitted });
        wanted.message = format!("{} of {} members are bound", counts.bound, counts.live);
        if let Some(outlook) = self.torn_outlook(view) {
            wanted.message = format!("{}; {outlook}", wanted.message);
        }
        let missing = match plan.released {
            0 => 0,
            _ => self.missing_members(view, counts.present_by_role()).len(),
        };
        if missing > 0 {
            let all = usize::try_from(counts.present()).unwrap_or(usize::MAX).saturating_add(missing);
            wanted.reason = Some(Reason::ReservationReleased);
            wanted.message = format!(
                "{} of {all} started, and no capacity is reserved for {missing} more",
                counts.started()
            );
            wanted.waiting_for = pods_to_create(missing);
        }
        self.fill_waiting_members(view, counts, wanted);
        wanted.plan = Some(plan.clone());
    }

    /// Adds the members that wait beside started ones.
    pub(super) fn fill_waiting_members(
        &self,
        view: &EngineView<'_>,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        if counts.ready.is_empty() {
            return;
        }
        let scales_up = self.is_scaling_up();
        let more = portcullis_text::counted(
            u32::try_from(counts.ready.len()).unwrap_or(u32::MAX),
            "more waits",
            "more wait",
        );
        let waiting =
            self.queueing.wait_reason.as_ref().filter(|_| self.queueing.rank.is_some() || !scales_up);
        let missing = self.group(view).map(|group| group.quorum.missing(&counts.present_by_role()));
        let missing = missing.filter(|missing| scales_up && !missing.is_empty());
        let refused = self.lifecycle.refused_lift.as_ref();
        let why = match (waiting, &missing) {
            _ if let Some(refused) = refused => {
                format!("the API server refuses the lift of pod {} ({})", refused.pod, refused.refusal)
            }
            (Some(waiting), _) => waiting.message.clone(),
            (None, Some(missing)) => format!("to start together with {missing}"),
            (None, None) => {
                self.owners_unknown_reason(view, counts).unwrap_or_else(|| "to be planned".to_owned())
            }
        };
        wanted.message = format!("{}; {more}: {why}", wanted.message);
        if let Some(waiting) = waiting {
            wanted.remedy.clone_from(&waiting.remedy);
            wanted.waiting_for.clone_from(&waiting.waiting_for);
            wanted.position = self.queueing.rank.as_ref().map(|rank| view.queue.position(rank));
        } else if let Some(missing) = missing {
            wanted.waiting_for = missing;
        }
    }
}
