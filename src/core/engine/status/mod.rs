//! Status and events of a gang. One sentence serves as condition, event and log message.
//!
//! | file | holds |
//! |---|---|
//! | `undecided` | the status of a gang without a plan |
//! | `planned` | the status of a gang with a plan |
//! | `unbound` | why lifted members are not bound |
//! | `elastic` | what the status says about the owners of an elastic gang's pods |
//! | `sentences` | parts of sentences that a status and its events share |
//! | `conditions` | `status.conditions` |
//! | `events` | Kubernetes events |
//! | `group_status_sync` | writes the status of the group object |

pub(in crate::engine) mod conditions;
mod elastic;
mod events;
pub(in crate::engine) mod group_status_sync;
mod planned;
mod sentences;
mod unbound;
mod undecided;

use crate::dialect;
use crate::engine::members::MemberCounts;
use crate::engine::protocol::plan_progress::Progress;
use crate::engine::protocol::{GangStatus, Phase};
use crate::engine::state::{EngineView, Gang};
use crate::engine::status::conditions::{ConditionInputs, conditions};
use crate::engine::status::undecided::fill_refused;
use crate::model::{Reason, Time};
use crate::objects::class_not_found;
use crate::shape::Shape;

impl Gang {
    /// The status that the gang should have, given the stored one.
    pub(in crate::engine) fn wanted_status(&self, stored: &GangStatus, view: &EngineView<'_>) -> GangStatus {
        let counts = self.count_members();
        let mut wanted = GangStatus {
            min_member: self.group(view).map_or(stored.min_member, |group| group.quorum.min_members()),
            members: counts.live,
            bound: counts.bound,
            needs: self.needs(),
            started_with: self.lifecycle.started_with.unwrap_or(stored.started_with),
            torn: self.lifecycle.torn,
            expired: self.lifecycle.expired.iter().cloned().collect(),
            ..GangStatus::default()
        };
        match &self.lifecycle.progress {
            Progress::Undecided => {
                self.fill_undecided(view, &counts, stored, &mut wanted);
                if let Some(outlook) = self.torn_outlook(view) {
                    wanted.message = format!("{}; {outlook}", wanted.message);
                }
            }
            Progress::Recording(plan) => self.fill_recording(view, plan, &counts, &mut wanted),
            Progress::Dropping(..) if let Some(refused) = &self.lifecycle.refused_lift => {
                fill_refused(refused, &mut wanted);
            }
            Progress::Dropping(_, why) => {
                wanted.phase = Phase::Waiting;
                wanted.reason = Some(Reason::PlanDropped);
                wanted.message = match self.lifecycle.torn {
                    None => format!("planning again, no member was lifted: {why}"),
                    Some(_) => format!("planning replacements: {why}"),
                };
                "another plan".clone_into(&mut wanted.waiting_for);
            }
            // The plan belongs to an earlier run. It stays until there is another.
            Progress::Recorded(plan) if counts.is_new_run => {
                self.fill_undecided(view, &counts, stored, &mut wanted);
                wanted.plan = Some(plan.clone());
            }
            // Not lifted yet: the status that was written with the plan is still right.
            Progress::Recorded(plan) if self.is_untouched(plan) => {
                return GangStatus { plan: Some(plan.clone()), ..stored.clone() };
            }
            Progress::Recorded(plan) => self.fill_recorded(view, plan, &counts, &mut wanted),
        }
        self.fill_stale(view, &counts, &mut wanted);
        wanted.ready = match self.group(view) {
            Some(_) => format!("{}/{}", counts.present(), wanted.min_member),
            None => format!("{}/?", counts.present()),
        };
        wanted.epoch = stored.epoch;
        let same = wanted.phase == stored.phase && stored.since != Time::default();
        wanted.since = if same { stored.since } else { view.now };
        let stale = self.lifecycle.stale.is_some();
        let inputs = ConditionInputs {
            class_missing: self.missing_priority_class(view),
            size_conflict: self.size_conflict_sentence(view),
            stale,
            elastic: self.elastic_condition(view, &counts),
            grows: self.is_scaling_up() && !stale,
        };
        wanted.conditions = conditions(&wanted, &stored.conditions, inputs, self.record.generation, view.now);
        wanted
    }

    /// Fills in a stale gang, unless a replacement is being started.
    fn fill_stale(&self, view: &EngineView<'_>, counts: &MemberCounts, wanted: &mut GangStatus) {
        if matches!(wanted.phase, Phase::Planned | Phase::Lifting) {
            return;
        }
        let Some((message, over)) = self.stale_message(view, counts) else { return };
        wanted.phase = if over { Phase::Torn } else { Phase::Admitted };
        wanted.reason = Some(Reason::StaleJob);
        wanted.message = message;
        let missing = self.group(view).map(|group| group.quorum.missing(&counts.active));
        wanted.waiting_for = missing.unwrap_or_default();
    }

    /// The sentence about a missing PriorityClass that the group names.
    ///
    /// Such a gang starts all the same, by the priority of its pods, as if the group named none. The group of
    /// a tutorial names a class of a scheduler that is not installed, and that must not block its pods. The
    /// webhook warns about it, and conditions of group and gang report it.
    fn missing_priority_class(&self, view: &EngineView<'_>) -> Option<String> {
        let (classes, class) = (view.priority_classes?, self.group(view)?.priority_class.as_ref()?);
        (!classes.contains_key(class)).then(|| {
            let sentence = class_not_found(class, classes.keys().map(|known| &**known));
            format!("{sentence} It is queued by the priority of its pods.")
        })
    }

    /// The sentence about members that declare another size than their group object.
    fn size_conflict_sentence(&self, view: &EngineView<'_>) -> Option<String> {
        let (group, declared) = self.size_conflict(view)?;
        let object = group.object_ref()?;
        Some(format!(
            "{} {} wants {} members, its pods say {} ({}): the {} counts",
            object.kind,
            object.name,
            group.quorum.min_members(),
            declared.min_members(),
            dialect::size_key(self.id.dialect)?,
            object.kind
        ))
    }

    /// The sum of the resource requests of all live members.
    fn needs(&self) -> String {
        let live = self.members.values().filter(|member| member.live());
        let shapes: Vec<&Shape> = live.map(|member| &*member.pod.shape).collect();
        sentences::needs(&shapes)
    }
}
