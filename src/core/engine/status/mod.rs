//! Status and events of a gang. One sentence serves as condition, event and log message.

pub(in crate::engine) mod conditions;
pub(in crate::engine) mod group_status_sync;

use crate::dialect::{self, Group, GroupEventContext};
use crate::engine::gang_state::GangState;
use crate::engine::members::MemberCounts;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{GangEvent, GangStatus, Phase, PlanRecord, PodRef};
use crate::engine::status::conditions::{ConditionInputs, ConditionStatus, ConditionType, conditions};
use crate::engine::{Action, Engine, StepContext};
use crate::gpu::ShareSize;
use crate::model::{Bytes, GangId, MilliCpu, PodUid, Reason, Time, VramMib};
use crate::objects::{class_not_found, names};
use crate::shape::Shape;

/// A sentence names at most this many members before "and N more".
const MAX_NAMED_MEMBERS: usize = 8;
/// At most this many pods get an event of their own.
const MAX_PODS_PER_EVENT: usize = 16;

impl Engine {
    /// The status that a gang should have, given the stored one.
    pub(in crate::engine) fn wanted_status(&self, id: &GangId, stored: &GangStatus, now: Time) -> GangStatus {
        let Some(gang) = self.expect_gang(id) else { return stored.clone() };
        let counts = self.count_members(id);
        let mut wanted = GangStatus {
            min_member: self.group(id).map_or(stored.min_member, |group| group.quorum.min_members()),
            members: counts.live,
            bound: counts.bound,
            needs: self.needs(gang),
            started_with: gang.lifecycle.started_with.unwrap_or(stored.started_with),
            expired: gang.lifecycle.expired.iter().cloned().collect(),
            ..GangStatus::default()
        };
        match &gang.lifecycle.progress {
            Progress::Undecided => self.fill_undecided(id, gang, &counts, stored, &mut wanted),
            Progress::Recording(plan) if !plan.placeholders.is_empty() && self.has_started(plan) => {
                self.fill_reserved(id, plan, &counts, &mut wanted);
            }
            Progress::Recording(plan) => {
                wanted.phase = Phase::Planned;
                wanted.reason = Some(Reason::Planned);
                wanted.message = format!("{} placed: {}", placed(plan.members.len(), &counts), places(plan));
                if !plan.placeholders.is_empty() {
                    wanted.message = format!(
                        "{}; capacity reserved for {}",
                        wanted.message,
                        crate::engine::members::placeholders::placeholders_summary(&plan.placeholders)
                    );
                }
                wanted.plan = Some(plan.clone());
            }
            Progress::Dropping(_, why) => {
                wanted.phase = Phase::Waiting;
                wanted.reason = Some(Reason::PlanDropped);
                wanted.message = format!("planning again, no member was lifted: {why}");
                "another plan".clone_into(&mut wanted.waiting_for);
            }
            // The plan belongs to an earlier run. It stays until there is another.
            Progress::Recorded(plan) if counts.is_new_run => {
                self.fill_undecided(id, gang, &counts, stored, &mut wanted);
                wanted.plan = Some(plan.clone());
            }
            Progress::Recorded(plan) => {
                let unbound = self.unbound_reasons(plan);
                let gated = plan.members.iter().any(|m| self.is_gated(&m.uid));
                let comes = now <= plan.deadline || unbound.is_empty();
                if !plan.placeholders.is_empty() && comes && self.has_started(plan) {
                    self.fill_reserved(id, plan, &counts, &mut wanted);
                } else if !gated && unbound.is_empty() {
                    self.fill_bound(id, gang, plan, &counts, &mut wanted);
                } else if now > plan.deadline && self.has_started(plan) {
                    wanted.phase = Phase::Torn;
                    wanted.reason = Some(Reason::Torn);
                    let mut lines: Vec<String> = unbound.iter().map(ToString::to_string).collect();
                    lines.extend(gang.record.api_error.iter().map(|t| format!("not lifted yet: {t}")));
                    if lines.is_empty() {
                        lines.push("some members are not lifted yet".to_owned());
                    }
                    wanted.waiting_for = self.waits_for(plan);
                    wanted.message =
                        format!("past its deadline of {}: {}", plan.deadline, shorten(&lines, "; "));
                    wanted.plan = Some(plan.clone());
                } else if self.has_started(plan) {
                    wanted.phase = Phase::Lifting;
                    wanted.reason = Some(Reason::Lifting);
                    let of = plan.members.len();
                    let lifted = of - plan.members.iter().filter(|m| self.is_gated(&m.uid)).count();
                    wanted.message =
                        format!("{lifted} of {of} lifted, {} bound: {}", counts.bound, places(plan));
                    wanted.plan = Some(plan.clone());
                } else {
                    // Not lifted yet: the status that was written with the plan is still right.
                    return GangStatus { plan: Some(plan.clone()), ..stored.clone() };
                }
            }
        }
        self.fill_stale(id, &counts, &mut wanted);
        wanted.ready = match self.group(id) {
            Some(_) => format!("{}/{}", counts.present(), wanted.min_member),
            None => format!("{}/?", counts.present()),
        };
        wanted.epoch = stored.epoch;
        let same = wanted.phase == stored.phase && stored.since != Time::default();
        wanted.since = if same { stored.since } else { now };
        let stale = gang.lifecycle.stale.is_some();
        let inputs = ConditionInputs {
            class_missing: self.missing_priority_class(id),
            size_conflict: self.size_conflict(id),
            stale,
            elastic: self.elastic_condition(id, &counts),
            grows: self.is_scaling_up(id) && !stale,
        };
        wanted.conditions = conditions(&wanted, &stored.conditions, inputs, gang.record.generation, now);
        wanted
    }

    /// Fills in a stale gang, unless a replacement is being started.
    fn fill_stale(&self, id: &GangId, counts: &MemberCounts, wanted: &mut GangStatus) {
        if matches!(wanted.phase, Phase::Planned | Phase::Lifting) {
            return;
        }
        let Some((message, over)) = self.stale_message(id, counts) else { return };
        wanted.phase = if over { Phase::Torn } else { Phase::Admitted };
        wanted.reason = Some(Reason::StaleJob);
        wanted.message = message;
        let missing = self.group(id).map(|group| group.quorum.missing(&counts.active));
        wanted.waiting_for = missing.unwrap_or_default();
    }

    /// Fills in a gang with placeholders.
    fn fill_reserved(&self, id: &GangId, plan: &PlanRecord, counts: &MemberCounts, wanted: &mut GangStatus) {
        wanted.phase = Phase::Lifting;
        wanted.reason = Some(Reason::Reserved);
        (wanted.message, wanted.waiting_for) = self.placeholder_summary(id, plan, counts);
        wanted.plan = Some(plan.clone());
        // A member without a placeholder is planned alone.
        if let Some(waiting) = self.gangs.get(id).and_then(|gang| gang.queueing.wait_reason.as_ref()) {
            wanted.message = format!("{}; one more waits: {}", wanted.message, waiting.message);
            wanted.remedy.clone_from(&waiting.remedy);
        }
    }

    /// The sentence about a missing PriorityClass that the group names.
    ///
    /// Such a gang starts all the same, by the priority of its pods, as if the group named none. The group of
    /// a tutorial names a class of a scheduler that is not installed, and that must not block its pods. The
    /// webhook warns about it, and conditions of group and gang report it.
    fn missing_priority_class(&self, id: &GangId) -> Option<String> {
        let (classes, class) = (self.priority_classes.as_ref()?, self.group(id)?.priority_class.as_ref()?);
        (!classes.contains_key(class)).then(|| {
            let sentence = class_not_found(class, classes.keys().map(|known| &**known));
            format!("{sentence} It is queued by the priority of its pods.")
        })
    }

    /// The sentence about members that declare another size than their group object.
    fn size_conflict(&self, id: &GangId) -> Option<String> {
        let (group, declared) = self.groups.size_conflict(id)?;
        let object = group.object_ref()?;
        Some(format!(
            "{} {} wants {} members, its pods say {} ({}): the {} counts",
            object.kind,
            object.name,
            group.quorum.min_members(),
            declared.min_members(),
            dialect::size_key(id.dialect)?,
            object.kind
        ))
    }

    /// Fills in a gang without a known size.
    fn fill_unknown(&self, id: &GangId, counts: &MemberCounts, wanted: &mut GangStatus) {
        wanted.phase = Phase::Gathering;
        if let Some(problem) = self.groups.disagreement(id) {
            wanted.reason = Some(Reason::MembersDisagree);
            wanted.message = problem.to_string();
            "its pods to agree".clone_into(&mut wanted.waiting_for);
            return;
        }
        wanted.reason = Some(Reason::GroupNotFound);
        let count = counted(counts.live, "pod names", "pods name");
        let say =
            dialect::size_key(id.dialect).map(|key| format!("one of them declares the size with {key}"));
        wanted.message = if dialect::has_group_objects(id.dialect) {
            let or = say.map(|say| format!(", or {say}")).unwrap_or_default();
            format!("{count} the group {id}, which does not exist; they start when it does{or}")
        } else {
            let when = say.unwrap_or_else(|| "one of them declares the size".to_owned());
            format!(
                "{count} the gang {id}, and none declares how many members it needs; they start when {when}"
            )
        };
        wanted.waiting_for = format!("group {}", id.name);
    }

    fn fill_undecided(
        &self,
        id: &GangId,
        gang: &GangState,
        counts: &MemberCounts,
        stored: &GangStatus,
        wanted: &mut GangStatus,
    ) {
        let Some(group) = self.group(id) else { return self.fill_unknown(id, counts, wanted) };
        let least = group.quorum.min_members();
        if counts.started() > 0 && self.is_scaling_up(id) {
            wanted.phase = Phase::Admitted;
            wanted.reason = Some(Reason::Admitted);
            wanted.message = format!("{} of {} members are bound", counts.bound, counts.live);
            wanted.plan.clone_from(&stored.plan);
            self.fill_waiting_members(id, gang, counts, wanted);
        } else if counts.ready.is_empty()
            && counts.started() > 0
            && self.is_complete(&group.quorum, counts, &[])
        {
            wanted.phase = Phase::Admitted;
            wanted.reason = Some(Reason::Admitted);
            wanted.message = format!("{} of {} members are bound", counts.bound, counts.live);
            wanted.plan.clone_from(&stored.plan);
        } else if !self.is_complete(&group.quorum, counts, &counts.ready)
            && !self.is_complete_with_placeholders(id, counts)
        {
            wanted.phase = Phase::Gathering;
            let here = counts.present();
            match counts.held.first() {
                Some((pod, gate)) => {
                    wanted.reason = Some(Reason::ForeignGate);
                    wanted.waiting_for = format!("gate {gate} of pod {pod}");
                    wanted.message = format!(
                        "{here} of {least} members are ready; pod {pod} is held by the scheduling gate {gate}, which another controller has to remove"
                    );
                }
                None => {
                    wanted.reason = Some(Reason::Gathering);
                    let missing = group.quorum.missing(&self.by_role(counts));
                    wanted.message = format!("{here} of {least} members are here; waiting for {missing}");
                    if let Some(never) = self.owners_below_min_member(id, counts) {
                        wanted.message = format!("{}; {never}", wanted.message);
                    }
                    if here == 1 && self.is_replica_of_unknown_set(gang) {
                        wanted.message.push_str(
                            " (no capacity can be reserved for workers that are created later: no LeaderWorkerSet of its name is known)",
                        );
                    }
                    wanted.waiting_for = missing;
                }
            }
        } else {
            wanted.phase = Phase::Waiting;
            match &gang.queueing.wait_reason {
                Some(waiting) => {
                    wanted.reason = Some(waiting.reason);
                    wanted.message.clone_from(&waiting.message);
                    wanted.waiting_for.clone_from(&waiting.waiting_for);
                    wanted.remedy.clone_from(&waiting.remedy);
                    wanted.position = gang.queueing.rank.as_ref().map(|rank| self.queue.position(rank));
                }
                None => {
                    wanted.reason = Some(Reason::Queued);
                    let why = self.owners_unknown_reason(id, counts);
                    "its turn".clone_into(&mut wanted.waiting_for);
                    if why.is_some() {
                        "the owners of its pods".clone_into(&mut wanted.waiting_for);
                    }
                    let why = why.unwrap_or_else(|| "not planned yet".to_owned());
                    let here = counts.present();
                    wanted.message = if here < least {
                        format!("{here} of {least} members exist, and the missing ones are known; {why}")
                    } else {
                        format!("all {least} members are here; {why}")
                    };
                }
            }
            if self.head_of_line.as_ref().is_some_and(|hold| hold.gang == *id) {
                wanted.message =
                    format!("{}; capacity is reserved for it as it becomes free", wanted.message);
            }
            if let Some(lapsed) = self.timeout_message(id) {
                wanted.reason = Some(Reason::SchedulingTimeout);
                wanted.message = format!("{lapsed}; {}", wanted.message);
            }
        }
    }

    /// Fills in a gang whose plan is bound. It may be torn if the plan had to leave members out.
    fn fill_bound(
        &self,
        id: &GangId,
        gang: &GangState,
        plan: &PlanRecord,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        let met = self.group(id).is_none_or(|group| self.is_complete(&group.quorum, counts, &[]));
        let torn = !met && (!counts.ready.is_empty() || plan.released > 0) && !self.is_scaling_up(id);
        wanted.phase = if torn { Phase::Torn } else { Phase::Admitted };
        wanted.reason = Some(if torn { Reason::Torn } else { Reason::Admitted });
        wanted.message = format!("{} of {} members are bound", counts.bound, counts.live);
        let missing =
            if plan.released > 0 { self.missing_members(id, self.by_role(counts)).len() } else { 0 };
        if missing > 0 {
            let all = usize::try_from(counts.present()).unwrap_or(usize::MAX).saturating_add(missing);
            wanted.reason = Some(Reason::ReservationReleased);
            wanted.message = format!(
                "{} of {all} started, and no capacity is reserved for {missing} more",
                counts.started()
            );
            wanted.waiting_for =
                format!("{missing} more {} to be made", if missing == 1 { "pod" } else { "pods" });
        }
        self.fill_waiting_members(id, gang, counts, wanted);
        wanted.plan = Some(plan.clone());
    }

    /// Adds the members that wait beside started ones.
    fn fill_waiting_members(
        &self,
        id: &GangId,
        gang: &GangState,
        counts: &MemberCounts,
        wanted: &mut GangStatus,
    ) {
        if counts.ready.is_empty() {
            return;
        }
        let more = counted(u32::try_from(counts.ready.len()).unwrap_or(u32::MAX), "more waits", "more wait");
        let verdict = gang
            .queueing
            .wait_reason
            .as_ref()
            .filter(|_| gang.queueing.rank.is_some() || !self.is_scaling_up(id));
        let missing = self.group(id).map(|group| group.quorum.missing(&self.by_role(counts)));
        let missing = missing.filter(|missing| self.is_scaling_up(id) && !missing.is_empty());
        let why = match (verdict, &missing) {
            (Some(waiting), _) => waiting.message.clone(),
            (None, Some(missing)) => format!("to start together with {missing}"),
            (None, None) => {
                self.owners_unknown_reason(id, counts).unwrap_or_else(|| "to be planned".to_owned())
            }
        };
        wanted.message = format!("{}; {more}: {why}", wanted.message);
        if let Some(waiting) = verdict {
            wanted.remedy.clone_from(&waiting.remedy);
            wanted.waiting_for.clone_from(&waiting.waiting_for);
            wanted.position = gang.queueing.rank.as_ref().map(|rank| self.queue.position(rank));
        } else if let Some(missing) = missing {
            wanted.waiting_for = missing;
        }
    }

    /// Records the events that follow from a new status.
    pub(in crate::engine) fn record_status_events(
        &mut self,
        id: &GangId,
        stored: &GangStatus,
        wanted: &GangStatus,
        step: &mut StepContext,
    ) {
        let doubted = |status: &GangStatus, kind| {
            let found =
                status.conditions.iter().find(|c| c.kind == kind && c.status == ConditionStatus::False);
            found.map(|c| c.message.clone())
        };
        for (kind, reason) in [
            (ConditionType::PriorityClassFound, Reason::PriorityClassNotFound),
            (ConditionType::SizeAgrees, Reason::SizesDiffer),
        ] {
            if let (Some(message), None) = (doubted(wanted, kind), doubted(stored, kind)) {
                self.record_event(id, reason, message, true, Vec::new(), step);
            }
        }
        let elastic = |status: &GangStatus| {
            let found = status.conditions.iter().find(|c| c.kind == ConditionType::Elastic);
            found.map(|c| (c.status, c.reason.clone(), c.message.clone()))
        };
        if let Some((holds, why, message)) = elastic(wanted)
            && elastic(stored).is_none_or(|(held, before, _)| (held, &before) != (holds, &why))
        {
            self.record_event(id, Reason::Elastic, message, why == "OwnersUnread", Vec::new(), step);
        }
        let (Some(reason), changed) = (wanted.reason, wanted.reason != stored.reason) else { return };
        let worth = match wanted.phase {
            Phase::Waiting => changed && reason != Reason::Queued,
            Phase::Gathering => changed && reason != Reason::Gathering,
            // A stale gang gets its event after the grace period, and a released reservation when it is
            // released.
            Phase::Torn => changed && !matches!(reason, Reason::StaleJob | Reason::ReservationReleased),
            Phase::Planned | Phase::Lifting | Phase::Admitted => false,
        };
        if worth {
            let warning = wanted.phase == Phase::Torn;
            let pods = self.pods_for_event(id);
            self.record_event(id, reason, wanted.message.clone(), warning, pods, step);
        }
    }

    /// Records once that every gate of a plan is removed.
    pub(in crate::engine) fn record_lifted_event(&mut self, id: &GangId, step: &mut StepContext) {
        let Some(gang) = self.expect_gang(id) else { return };
        let Progress::Recorded(plan) = &gang.lifecycle.progress else { return };
        let gated = plan.members.iter().any(|m| self.is_gated(&m.uid));
        if gang.reported.lifted_event_recorded || gated || plan.members.is_empty() {
            return;
        }
        let counts = self.count_members(id);
        let mut message = format!("{} lifted: {}", placed(plan.members.len(), &counts), places(plan));
        if !plan.placeholders.is_empty() {
            message = format!("{message}; {}", self.placeholder_summary(id, plan, &counts).0);
        }
        self.record_event(id, Reason::Lifted, message, false, Vec::new(), step);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.reported.lifted_event_recorded = true;
        }
    }

    pub(in crate::engine) fn record_event(
        &self,
        id: &GangId,
        reason: Reason,
        message: String,
        warning: bool,
        pods: Vec<PodRef>,
        step: &mut StepContext,
    ) {
        let known = self.group(id);
        let group = known.and_then(Group::object_ref);
        let group_event = known.and_then(|known| {
            let counts = self.count_members(id);
            let news = GroupEventContext {
                reason,
                message: &message,
                members: counts.live,
                min_members: known.quorum.min_members(),
                scheduled: counts.bound,
                gated_by_others: u32::try_from(counts.held.len()).unwrap_or(u32::MAX),
            };
            dialect::group_event(known, &news)
        });
        let gang = id.clone();
        step.send(Action::RecordEvent(GangEvent {
            gang,
            reason,
            message,
            warning,
            group,
            group_event,
            pods,
        }));
    }

    /// The pods that get an event of their own: not all of a large gang, because each event is a write.
    fn pods_for_event(&self, id: &GangId) -> Vec<PodRef> {
        let members = self.gangs.get(id).into_iter().flat_map(|gang| &gang.members);
        let waiting =
            members.filter_map(|uid| self.members.get(uid)).filter(|m| m.live() && m.pod.node.is_none());
        let mut pods: Vec<PodRef> = waiting.map(|m| PodRef::of(&m.pod)).collect();
        pods.sort();
        pods.truncate(MAX_PODS_PER_EVENT);
        pods
    }

    pub(in crate::engine) fn by_role(
        &self,
        counts: &MemberCounts,
    ) -> std::collections::BTreeMap<Option<crate::model::Str>, u32> {
        let mut by_role = counts.active.clone();
        for uid in &counts.ready {
            if let Some(member) = self.members.get(uid) {
                *by_role.entry(crate::engine::members::role(&member.pod).cloned()).or_default() += 1;
            }
        }
        by_role
    }

    /// The planned pods that are not bound, in a few words.
    fn waits_for(&self, plan: &PlanRecord) -> String {
        let waits = |uid: &PodUid| self.members.get(uid).is_some_and(|m| m.pod.gated() || m.unbound());
        let mut names = plan.members.iter().filter(|m| waits(&m.uid)).map(|m| &m.pod);
        match (names.next(), names.count()) {
            (None, _) => String::new(),
            (Some(first), 0) => format!("{first} to be bound"),
            (Some(first), more) => format!("{first} and {more} more to be bound"),
        }
    }

    /// Whether a member of the plan is lifted.
    pub(in crate::engine) fn has_started(&self, plan: &PlanRecord) -> bool {
        plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| !m.pod.gated()))
    }

    fn is_gated(&self, uid: &PodUid) -> bool {
        self.members.get(uid).is_some_and(|m| m.pod.gated())
    }

    /// The sum of the resource requests of all live members.
    fn needs(&self, gang: &GangState) -> String {
        let shapes: Vec<&Shape> = (gang.members.iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|m| m.live())
            .map(|m| &*m.pod.shape)
            .collect();
        needs(&shapes)
    }
}

/// The sum of resource requests: GPUs and VRAM first, because they are scarce; CPU and memory only if there
/// is nothing else.
fn needs(shapes: &[&Shape]) -> String {
    let mut parts = Vec::new();
    let (mut vram, mut billionths) = (VramMib::ZERO, 0_u64);
    for share in shapes.iter().filter_map(|s| s.share) {
        for _ in 0..share.devices {
            match share.size {
                ShareSize::Vram(mib) => vram = vram.saturating_add(mib),
                ShareSize::Fraction(part) => billionths = billionths.saturating_add(part),
            }
        }
    }
    if vram > VramMib::ZERO {
        parts.push(format!("{vram} VRAM"));
    }
    if billionths > 0 {
        let hundredths = billionths / 10_000_000;
        parts.push(format!("{}.{:02} GPU (fractions)", hundredths / 100, hundredths % 100));
    }
    let mut extended = std::collections::BTreeMap::new();
    for (name, amount) in shapes.iter().flat_map(|s| &s.requests.extended) {
        let sum: &mut u64 = extended.entry(name).or_default();
        *sum = sum.saturating_add(*amount);
    }
    for (name, amount) in extended {
        parts.push(if &**name == names::NVIDIA_GPU {
            format!("{amount} GPU")
        } else {
            format!("{amount} {name}")
        });
    }
    if parts.is_empty() {
        let cpu = shapes.iter().fold(MilliCpu::ZERO, |sum, s| sum.saturating_add(s.requests.cpu));
        let memory = shapes.iter().fold(Bytes::ZERO, |sum, s| sum.saturating_add(s.requests.memory));
        parts.push(format!("{cpu}, {memory}"));
    }
    parts.join(", ")
}

fn placed(members: usize, counts: &MemberCounts) -> String {
    format!("{members} of {}", counts.live)
}

/// `app-server -> gpu-1[0], model-1 -> gpu-2[0,1], worker -> node-3`.
fn places(plan: &PlanRecord) -> String {
    let lines: Vec<String> = (plan.members.iter())
        .map(|m| {
            let cards = m.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let cards = if cards.is_empty() { cards } else { format!("[{cards}]") };
            format!("{} -> {}{cards}", m.pod, m.node)
        })
        .collect();
    shorten(&lines, ", ")
}

fn shorten(lines: &[String], separator: &str) -> String {
    let mut text = lines.iter().take(MAX_NAMED_MEMBERS).cloned().collect::<Vec<_>>().join(separator);
    if lines.len() > MAX_NAMED_MEMBERS {
        text = format!("{text}{separator}and {} more", lines.len() - MAX_NAMED_MEMBERS);
    }
    text
}

pub(in crate::engine) use portcullis_text::counted;
