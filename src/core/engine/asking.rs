//! Who asks for how much, for whoever adds it up. Read only: nothing is decided by it.

use super::Engine;
use crate::model::{GangId, PodKey, PodUid, Str};
use crate::pod::Pod;
use crate::shape::Shape;

/// A member of a gang.
#[derive(Clone, Copy, Debug)]
pub struct PlanningView<'e> {
    /// The pod as it was last read.
    pub pod: &'e Pod,
    /// Its gang.
    pub gang: &'e GangId,
    /// The queue that the group of the gang names.
    pub queue: Option<&'e Str>,
    /// It is on a node, or has its place on one.
    pub placed: bool,
}

/// A pod of no gang that is on no node.
#[derive(Clone, Copy, Debug)]
pub struct UnplacedPods<'e> {
    /// Its identity.
    pub uid: &'e PodUid,
    /// Its name.
    pub key: &'e PodKey,
    /// What it asks for.
    pub shape: &'e Shape,
}

impl Engine {
    /// Every member of a gang that has not ended and is not on its way out, by UID.
    pub fn asking(&self) -> impl Iterator<Item = PlanningView<'_>> {
        self.members.iter().filter(|(_, member)| member.live()).filter_map(|(uid, member)| {
            let gang = &member.pod.membership.as_ref()?.gang;
            let queue = self.groups.get(gang).and_then(|group| group.queue.as_ref());
            Some(PlanningView { pod: &member.pod, gang, queue, placed: self.snapshot.charged(uid).is_some() })
        })
    }

    /// Every pod of no gang that waits for its node, behind whatever gate, by UID.
    pub fn unplaced(&self) -> impl Iterator<Item = UnplacedPods<'_>> {
        self.unplaced.iter().map(|(uid, (key, shape))| UnplacedPods { uid, key, shape })
    }
}
