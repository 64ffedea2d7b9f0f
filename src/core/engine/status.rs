//! What a gang says of itself: one sentence for condition, event and log, made in one place.

use super::conditions::{ConditionStatus, ConditionType, Doubts, conditions};
use super::gather::Census;
use super::state::{Gang, Progress};
use super::types::{GangEvent, GangStatus, Phase, PlanRecord, PodRef};
use super::{Action, Engine, Step};
use crate::dialect::{self, Group, GroupEventContext};
use crate::gpu::ShareSize;
use crate::model::{Bytes, GangId, MilliCpu, PodUid, Reason, Time, VramMib};
use crate::objects::{class_not_found, names};
use crate::shape::Shape;

/// How many members a sentence names before it says "and N more".
const NAMED: usize = 8;
/// How many pods get an event of their own.
const TOLD: usize = 16;

impl Engine {
    /// The status a gang should have, given the one that is stored.
    pub(super) fn wanted_status(&self, id: &GangId, stored: &GangStatus, now: Time) -> GangStatus {
        let Some(gang) = self.gangs.get(id) else { return stored.clone() };
        let census = self.census(id);
        let mut wanted = GangStatus {
            min_member: self.group(id).map_or(stored.min_member, |group| group.quorum.min_members()),
            members: census.live,
            bound: census.bound,
            needs: self.needs(gang),
            started_with: gang.started_with.unwrap_or(stored.started_with),
            expired: gang.expired.iter().cloned().collect(),
            ..GangStatus::default()
        };
        match &gang.progress {
            Progress::Undecided => self.say_undecided(id, gang, &census, stored, &mut wanted),
            Progress::Recording(plan) if !plan.placeholders.is_empty() && self.begun(plan) => {
                self.say_reserved(id, plan, &census, &mut wanted);
            }
            Progress::Recording(plan) => {
                wanted.phase = Phase::Planned;
                wanted.reason = Some(Reason::Planned);
                wanted.message = format!("{} placed: {}", placed(plan.members.len(), &census), places(plan));
                if !plan.placeholders.is_empty() {
                    wanted.message = format!(
                        "{}; room held for {}",
                        wanted.message,
                        super::to_come::told(&plan.placeholders)
                    );
                }
                wanted.plan = Some(plan.clone());
            }
            Progress::Dropping(_, why) => {
                wanted.phase = Phase::Waiting;
                wanted.reason = Some(Reason::PlanDropped);
                wanted.message = format!("planned anew, nothing was lifted: {why}");
                "another plan".clone_into(&mut wanted.waiting_for);
            }
            // The plan of an earlier run, until there is another.
            Progress::Recorded(plan) if census.begins_anew => {
                self.say_undecided(id, gang, &census, stored, &mut wanted);
                wanted.plan = Some(plan.clone());
            }
            Progress::Recorded(plan) => {
                let unbound = self.unbound_because(plan);
                let gated = plan.members.iter().any(|m| self.is_gated(&m.uid));
                let comes = now <= plan.deadline || unbound.is_empty();
                if !plan.placeholders.is_empty() && comes && self.begun(plan) {
                    self.say_reserved(id, plan, &census, &mut wanted);
                } else if !gated && unbound.is_empty() {
                    self.say_bound(id, gang, plan, &census, &mut wanted);
                } else if now > plan.deadline && self.begun(plan) {
                    wanted.phase = Phase::Torn;
                    wanted.reason = Some(Reason::Torn);
                    let mut lines: Vec<String> = unbound.iter().map(ToString::to_string).collect();
                    lines.extend(gang.trouble.iter().map(|t| format!("not lifted yet: {t}")));
                    if lines.is_empty() {
                        lines.push("some members are not lifted yet".to_owned());
                    }
                    wanted.waiting_for = self.waits_for(plan);
                    wanted.message =
                        format!("past its deadline of {}: {}", plan.deadline, shorten(&lines, "; "));
                    wanted.plan = Some(plan.clone());
                } else if self.begun(plan) {
                    wanted.phase = Phase::Lifting;
                    wanted.reason = Some(Reason::Lifting);
                    let of = plan.members.len();
                    let lifted = of - plan.members.iter().filter(|m| self.is_gated(&m.uid)).count();
                    wanted.message =
                        format!("{lifted} of {of} lifted, {} bound: {}", census.bound, places(plan));
                    wanted.plan = Some(plan.clone());
                } else {
                    // On its way: what was written with the decision still says it.
                    return GangStatus { plan: Some(plan.clone()), ..stored.clone() };
                }
            }
        }
        self.say_stale(id, &census, &mut wanted);
        wanted.ready = match self.group(id) {
            Some(_) => format!("{}/{}", census.here(), wanted.min_member),
            None => format!("{}/?", census.here()),
        };
        wanted.epoch = stored.epoch;
        let same = wanted.phase == stored.phase && stored.since != Time::default();
        wanted.since = if same { stored.since } else { now };
        let stale = gang.stale.is_some();
        let doubts = Doubts {
            class_missing: self.missing_class(id),
            overruled: self.overruled(id),
            stale,
            elastic: self.elastic_says(id, &census),
            grows: self.grows(id) && !stale,
        };
        wanted.conditions = conditions(&wanted, &stored.conditions, doubts, gang.generation, now);
        wanted
    }

    /// A gang that is not whole any more, while nothing is on its way that would make it so.
    fn say_stale(&self, id: &GangId, census: &Census, wanted: &mut GangStatus) {
        if matches!(wanted.phase, Phase::Planned | Phase::Lifting) {
            return;
        }
        let Some((message, over)) = self.stale_message(id, census) else { return };
        wanted.phase = if over { Phase::Torn } else { Phase::Admitted };
        wanted.reason = Some(Reason::StaleJob);
        wanted.message = message;
        let missing = self.group(id).map(|group| group.quorum.missing(&census.active));
        wanted.waiting_for = missing.unwrap_or_default();
    }

    /// A gang whose members come one after the other, and whose room is held.
    fn say_reserved(&self, id: &GangId, plan: &PlanRecord, census: &Census, wanted: &mut GangStatus) {
        wanted.phase = Phase::Lifting;
        wanted.reason = Some(Reason::Reserved);
        (wanted.message, wanted.waiting_for) = self.say_coming(id, plan, census);
        wanted.plan = Some(plan.clone());
        // Who is here and found no place is planned alone.
        if let Some(waiting) = self.gangs.get(id).and_then(|gang| gang.verdict.as_ref()) {
            wanted.message = format!("{}; one more waits: {}", wanted.message, waiting.explanation.message);
            wanted.remedy.clone_from(&waiting.explanation.remedy);
        }
    }

    /// The sentence about a PriorityClass that the group names and that does not exist.
    ///
    /// Such a gang waits and starts all the same, by the priority of its pods, as if the group named none: a tutorial's
    /// group names a class of a scheduler that is not installed here, and that must not hold its pods for ever. But it
    /// is said at apply, on the group and on the gang.
    fn missing_class(&self, id: &GangId) -> Option<String> {
        let (classes, class) = (self.priority_classes.as_ref()?, self.group(id)?.priority_class.as_ref()?);
        (!classes.contains_key(class)).then(|| {
            let sentence = class_not_found(class, classes.keys().map(|known| &**known));
            format!("{sentence} It is queued by the priority of its pods.")
        })
    }

    /// The sentence about members that say another size than their group object.
    fn overruled(&self, id: &GangId) -> Option<String> {
        let (group, declared) = self.groups.overruled(id)?;
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

    /// Nobody knows how many members it takes.
    fn say_unknown(&self, id: &GangId, census: &Census, wanted: &mut GangStatus) {
        wanted.phase = Phase::Gathering;
        if let Some(problem) = self.groups.disagreement(id) {
            wanted.reason = Some(Reason::MembersDisagree);
            wanted.message = problem.to_string();
            "its pods to agree".clone_into(&mut wanted.waiting_for);
            return;
        }
        wanted.reason = Some(Reason::GroupNotFound);
        let count = counted(census.live, "pod names", "pods name");
        let say = dialect::size_key(id.dialect).map(|key| format!("one of them says its size by {key}"));
        wanted.message = if dialect::has_group_objects(id.dialect) {
            let or = say.map(|say| format!(", or {say}")).unwrap_or_default();
            format!("{count} the group {id}, which does not exist; they start when it does{or}")
        } else {
            let when = say.unwrap_or_else(|| "one of them says its size".to_owned());
            format!("{count} the gang {id}, and none says how many members it takes; they start when {when}")
        };
        wanted.waiting_for = format!("group {}", id.name);
    }

    fn say_undecided(
        &self,
        id: &GangId,
        gang: &Gang,
        census: &Census,
        stored: &GangStatus,
        wanted: &mut GangStatus,
    ) {
        let Some(group) = self.group(id) else { return self.say_unknown(id, census, wanted) };
        let least = group.quorum.min_members();
        if census.started() > 0 && self.grows(id) {
            wanted.phase = Phase::Admitted;
            wanted.reason = Some(Reason::Admitted);
            wanted.message = format!("{} of {} members are bound", census.bound, census.live);
            wanted.plan.clone_from(&stored.plan);
            self.say_more_wait(id, gang, census, wanted);
        } else if census.ready.is_empty() && census.started() > 0 && self.complete(&group.quorum, census, &[])
        {
            wanted.phase = Phase::Admitted;
            wanted.reason = Some(Reason::Admitted);
            wanted.message = format!("{} of {} members are bound", census.bound, census.live);
            wanted.plan.clone_from(&stored.plan);
        } else if !self.complete(&group.quorum, census, &census.ready)
            && !self.complete_with_those_to_come(id, census)
        {
            wanted.phase = Phase::Gathering;
            let here = census.here();
            match census.held.first() {
                Some((pod, gate)) => {
                    wanted.reason = Some(Reason::ForeignGate);
                    wanted.waiting_for = format!("gate {gate} of pod {pod}");
                    wanted.message = format!(
                        "{here} of {least} members are ready; pod {pod} is held by the scheduling gate {gate}, which is not ours to remove"
                    );
                }
                None => {
                    wanted.reason = Some(Reason::Gathering);
                    let missing = group.quorum.missing(&self.by_role(census));
                    wanted.message = format!("{here} of {least} members are here; waiting for {missing}");
                    if let Some(never) = self.never_complete(id, census) {
                        wanted.message = format!("{}; {never}", wanted.message);
                    }
                    if here == 1 && self.set_unknown(gang) {
                        wanted.message.push_str(
                            " (no room can be held for workers that are made later: no LeaderWorkerSet of its name is known)",
                        );
                    }
                    wanted.waiting_for = missing;
                }
            }
        } else {
            wanted.phase = Phase::Waiting;
            match &gang.verdict {
                Some(waiting) => {
                    wanted.reason = Some(waiting.explanation.reason);
                    wanted.message.clone_from(&waiting.explanation.message);
                    wanted.waiting_for.clone_from(&waiting.explanation.waiting_for);
                    wanted.remedy.clone_from(&waiting.explanation.remedy);
                    wanted.position = gang.rank.as_ref().map(|rank| self.queue.position(rank));
                }
                None => {
                    wanted.reason = Some(Reason::Queued);
                    let why = self.owners_not_settled(id, census);
                    "its turn".clone_into(&mut wanted.waiting_for);
                    if why.is_some() {
                        "the owners of its pods".clone_into(&mut wanted.waiting_for);
                    }
                    let why = why.unwrap_or_else(|| "not planned yet".to_owned());
                    let here = census.here();
                    wanted.message = if here < least {
                        format!("{here} of {least} members are here, and the others are known; {why}")
                    } else {
                        format!("all {least} members are here; {why}")
                    };
                }
            }
            if self.hold.as_ref().is_some_and(|hold| hold.gang == *id) {
                wanted.message = format!("{}; room is held for it as it gets free", wanted.message);
            }
            if let Some(lapsed) = self.lapsed(id) {
                wanted.reason = Some(Reason::SchedulingTimeout);
                wanted.message = format!("{lapsed}; {}", wanted.message);
            }
        }
    }

    /// Everything that was planned is bound. Where a plan had to leave members out when it had begun, the gang may still
    /// be in parts.
    fn say_bound(
        &self,
        id: &GangId,
        gang: &Gang,
        plan: &PlanRecord,
        census: &Census,
        wanted: &mut GangStatus,
    ) {
        let met = self.group(id).is_none_or(|group| self.complete(&group.quorum, census, &[]));
        let torn = !met && (!census.ready.is_empty() || plan.released > 0) && !self.grows(id);
        wanted.phase = if torn { Phase::Torn } else { Phase::Admitted };
        wanted.reason = Some(if torn { Reason::Torn } else { Reason::Admitted });
        wanted.message = format!("{} of {} members are bound", census.bound, census.live);
        let missing = if plan.released > 0 { self.to_come(id, self.by_role(census)).len() } else { 0 };
        if missing > 0 {
            let all = usize::try_from(census.here()).unwrap_or(usize::MAX).saturating_add(missing);
            wanted.reason = Some(Reason::RoomReleased);
            wanted.message = format!(
                "{} of {all} started, and no room is held any more for {missing} more",
                census.started()
            );
            wanted.waiting_for =
                format!("{missing} more {} to be made", if missing == 1 { "pod" } else { "pods" });
        }
        self.say_more_wait(id, gang, census, wanted);
        wanted.plan = Some(plan.clone());
    }

    /// Members that wait beside those that have started.
    fn say_more_wait(&self, id: &GangId, gang: &Gang, census: &Census, wanted: &mut GangStatus) {
        if census.ready.is_empty() {
            return;
        }
        let more = counted(u32::try_from(census.ready.len()).unwrap_or(u32::MAX), "more waits", "more wait");
        let verdict = gang.verdict.as_ref().filter(|_| gang.rank.is_some() || !self.grows(id));
        let missing = self.group(id).map(|group| group.quorum.missing(&self.by_role(census)));
        let missing = missing.filter(|missing| self.grows(id) && !missing.is_empty());
        let why = match (verdict, &missing) {
            (Some(waiting), _) => waiting.explanation.message.clone(),
            (None, Some(missing)) => format!("to start together with {missing}"),
            (None, None) => self.owners_not_settled(id, census).unwrap_or_else(|| "to be planned".to_owned()),
        };
        wanted.message = format!("{}; {more}: {why}", wanted.message);
        if let Some(waiting) = verdict {
            wanted.remedy.clone_from(&waiting.explanation.remedy);
            wanted.waiting_for.clone_from(&waiting.explanation.waiting_for);
            wanted.position = gang.rank.as_ref().map(|rank| self.queue.position(rank));
        } else if let Some(missing) = missing {
            wanted.waiting_for = missing;
        }
    }

    /// Tells people what a new status says, and that a gang is lifted.
    pub(super) fn tell_news(
        &mut self,
        id: &GangId,
        stored: &GangStatus,
        wanted: &GangStatus,
        step: &mut Step,
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
                self.tell(id, reason, message, true, Vec::new(), step);
            }
        }
        let elastic = |status: &GangStatus| {
            let found = status.conditions.iter().find(|c| c.kind == ConditionType::Elastic);
            found.map(|c| (c.status, c.reason.clone(), c.message.clone()))
        };
        if let Some((holds, why, message)) = elastic(wanted)
            && elastic(stored).is_none_or(|(held, before, _)| (held, &before) != (holds, &why))
        {
            self.tell(id, Reason::Elastic, message, why == "OwnersUnread", Vec::new(), step);
        }
        let (Some(reason), changed) = (wanted.reason, wanted.reason != stored.reason) else { return };
        let worth = match wanted.phase {
            Phase::Waiting => changed && reason != Reason::Queued,
            Phase::Gathering => changed && reason != Reason::Gathering,
            // That a gang is stale is told at the end of its grace, and that room is let go when it is.
            Phase::Torn => changed && !matches!(reason, Reason::StaleJob | Reason::RoomReleased),
            Phase::Planned | Phase::Lifting | Phase::Admitted => false,
        };
        if worth {
            let warning = wanted.phase == Phase::Torn;
            let pods = self.told_pods(id);
            self.tell(id, reason, wanted.message.clone(), warning, pods, step);
        }
    }

    /// Says once that every gate of a plan is gone.
    pub(super) fn tell_lifted(&mut self, id: &GangId, step: &mut Step) {
        let Some(gang) = self.gangs.get(id) else { return };
        let Progress::Recorded(plan) = &gang.progress else { return };
        let gated = plan.members.iter().any(|m| self.is_gated(&m.uid));
        if gang.told_lifted || gated || plan.members.is_empty() {
            return;
        }
        let census = self.census(id);
        let mut message = format!("{} lifted: {}", placed(plan.members.len(), &census), places(plan));
        if !plan.placeholders.is_empty() {
            message = format!("{message}; {}", self.say_coming(id, plan, &census).0);
        }
        self.tell(id, Reason::Lifted, message, false, Vec::new(), step);
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.told_lifted = true;
        }
    }

    pub(super) fn tell(
        &self,
        id: &GangId,
        reason: Reason,
        message: String,
        warning: bool,
        pods: Vec<PodRef>,
        step: &mut Step,
    ) {
        let known = self.group(id);
        let group = known.and_then(Group::object_ref);
        let group_event = known.and_then(|known| {
            let census = self.census(id);
            let news = GroupEventContext {
                reason,
                message: &message,
                members: census.live,
                min_members: known.quorum.min_members(),
                scheduled: census.bound,
                gated_by_others: u32::try_from(census.held.len()).unwrap_or(u32::MAX),
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

    /// The pods that are told why they wait: not all of a large gang, because each is a write.
    fn told_pods(&self, id: &GangId) -> Vec<PodRef> {
        let members = self.gangs.get(id).into_iter().flat_map(|gang| &gang.members);
        let waiting =
            members.filter_map(|uid| self.members.get(uid)).filter(|m| m.live() && m.pod.node.is_none());
        let mut pods: Vec<PodRef> = waiting.map(|m| PodRef::of(&m.pod)).collect();
        pods.sort();
        pods.truncate(TOLD);
        pods
    }

    pub(super) fn by_role(
        &self,
        census: &Census,
    ) -> std::collections::BTreeMap<Option<crate::model::Str>, u32> {
        let mut counts = census.active.clone();
        for uid in &census.ready {
            if let Some(member) = self.members.get(uid) {
                *counts.entry(super::gather::role(&member.pod).cloned()).or_default() += 1;
            }
        }
        counts
    }

    /// Which planned pods are on no node yet, in a few words.
    fn waits_for(&self, plan: &PlanRecord) -> String {
        let waits = |uid: &PodUid| self.members.get(uid).is_some_and(|m| m.pod.gated() || m.unbound());
        let mut names = plan.members.iter().filter(|m| waits(&m.uid)).map(|m| &m.pod);
        match (names.next(), names.count()) {
            (None, _) => String::new(),
            (Some(first), 0) => format!("{first} to be bound"),
            (Some(first), more) => format!("{first} and {more} more to be bound"),
        }
    }

    /// Whether any member of a plan is lifted.
    pub(super) fn begun(&self, plan: &PlanRecord) -> bool {
        plan.members.iter().any(|m| self.members.get(&m.uid).is_some_and(|m| !m.pod.gated()))
    }

    fn is_gated(&self, uid: &PodUid) -> bool {
        self.members.get(uid).is_some_and(|m| m.pod.gated())
    }

    /// What all live members ask for together, in the words a person would use.
    fn needs(&self, gang: &Gang) -> String {
        let shapes: Vec<&Shape> = (gang.members.iter())
            .filter_map(|uid| self.members.get(uid))
            .filter(|m| m.live())
            .map(|m| &*m.pod.shape)
            .collect();
        needs(&shapes)
    }
}

/// GPUs and VRAM first, as what is scarce; cpu and memory only where there is nothing else.
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

fn placed(members: usize, census: &Census) -> String {
    format!("{members} of {}", census.live)
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
    let mut text = lines.iter().take(NAMED).cloned().collect::<Vec<_>>().join(separator);
    if lines.len() > NAMED {
        text = format!("{text}{separator}and {} more", lines.len() - NAMED);
    }
    text
}

pub(super) use portcullis_text::counted;
