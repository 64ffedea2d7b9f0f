//! The members and pods that ask for capacity, for reports. No decision depends on it.

use crate::engine::Engine;
use crate::model::{GangId, PodKey, PodUid, Str};
use crate::pod::Pod;
use crate::shape::Shape;

/// A member of a gang, for reports.
#[derive(Clone, Copy, Debug)]
pub struct MemberView<'e> {
    /// The pod as last read.
    pub pod: &'e Pod,
    /// The gang of the pod.
    pub gang: &'e GangId,
    /// The queue that the group of the gang names.
    pub queue: Option<&'e Str>,
    /// The pod is bound to a node or planned onto one.
    pub placed: bool,
}

/// A pod without a gang and without a node, for reports.
#[derive(Clone, Copy, Debug)]
pub struct UnplacedPod<'e> {
    /// UID of the pod.
    pub uid: &'e PodUid,
    /// Namespace and name of the pod.
    pub key: &'e PodKey,
    /// The resource requests of the pod.
    pub shape: &'e Shape,
}

impl Engine {
    /// Every live member of a gang, by UID.
    pub fn member_views(&self) -> impl Iterator<Item = MemberView<'_>> {
        self.gang_by_pod.iter().filter_map(|(uid, id)| {
            let gang = self.expect_gang(id)?;
            let member = self.member(uid).filter(|member| member.live())?;
            let queue = gang.group_among(&self.group_objects).and_then(|group| group.queue.as_ref());
            Some(MemberView {
                pod: &member.pod,
                gang: &gang.id,
                queue,
                placed: self.snapshot.charged(uid).is_some(),
            })
        })
    }

    /// Every pod without a gang that has no node yet, gated or not, by UID.
    pub fn unplaced_pods(&self) -> impl Iterator<Item = UnplacedPod<'_>> {
        self.unplaced_pods.iter().map(|(uid, (key, shape))| UnplacedPod { uid, key, shape })
    }
}
