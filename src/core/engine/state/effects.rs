//! Where the logic of the engine puts its output.

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::engine::protocol::{Action, Effect};
use crate::engine::queue::{PlanningObserver, PlanningRound};
use crate::model::{Epoch, GangId, Time};

/// The requests and events of one call of `Engine::steps`, in order.
#[derive(Debug)]
pub(in crate::engine) struct Effects {
    epoch: Epoch,
    sent: Vec<Effect>,
}

impl Effects {
    /// Adds an action under the epoch of the engine.
    pub(in crate::engine) fn send(&mut self, action: Action) {
        self.sent.push(Effect { epoch: self.epoch, action });
    }
}

/// The time and the output of one call of `Engine::steps`, and the gangs that it still has to look at.
pub(in crate::engine) struct StepContext<'o> {
    pub now: Time,
    pub effects: Effects,
    pub touched: BTreeSet<GangId>,
    observer: Option<&'o mut dyn PlanningObserver>,
}

impl<'o> StepContext<'o> {
    /// The context of a step at this time, under this epoch.
    pub(in crate::engine) fn new(
        epoch: Epoch,
        now: Time,
        observer: Option<&'o mut dyn PlanningObserver>,
    ) -> Self {
        Self { now, effects: Effects { epoch, sent: Vec::new() }, touched: BTreeSet::new(), observer }
    }

    /// Sends all further effects under this epoch.
    pub(in crate::engine) fn set_epoch(&mut self, epoch: Epoch) {
        self.effects.epoch = epoch;
    }

    /// Has the engine look at a gang before the step ends.
    pub(in crate::engine) fn touch(&mut self, gang: &GangId) {
        if !self.touched.contains(gang) {
            self.touched.insert(gang.clone());
        }
    }

    /// Shows a planning round to the observer, if there is one.
    pub(in crate::engine) fn observe_round(
        &mut self,
        engine: &Engine,
        show: fn(&mut dyn PlanningObserver, &PlanningRound<'_>),
    ) {
        if let Some(observer) = &mut self.observer {
            show(*observer, &PlanningRound::new(engine, self.now));
        }
    }

    /// Everything that was sent.
    pub(in crate::engine) fn into_effects(self) -> Vec<Effect> {
        self.effects.sent
    }
}
