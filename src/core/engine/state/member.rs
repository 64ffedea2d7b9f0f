//! A member: a pod of a gang, and the requests about it.

use std::sync::Arc;

use crate::engine::state::RetryTimer;
use crate::model::{NodeName, ResourceVersion, Str};
use crate::pod::{Pod, PodPhase};
use crate::shape::Shape;

/// A pod that belongs to a gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct MemberState {
    /// The newest version of the pod that the engine has read.
    pub pod: Pod,
    /// The request about the pod that has no answer yet.
    pub request: Option<PodRequest>,
    /// The lift permit: the gate may be removed at this version of the pod. A read of the lease grants it.
    /// Any change of the pod or of its plan revokes it.
    pub permit: Option<ResourceVersion>,
    /// The pod must be fenced, because an earlier lift may still arrive at the API server.
    pub must_fence: bool,
    /// The pod must be read again, because it has changed since the engine read it.
    pub must_read: bool,
    /// The node of the last nomination, successful or not. No decision depends on it.
    pub nominated: Option<NodeName>,
    /// Delay after refused requests.
    pub retry: RetryTimer,
    /// The shape before the lift, which adds the planned node to the affinity. `None` if this engine has not
    /// seen the pod gated.
    pub gated_shape: Option<Arc<Shape>>,
    /// The message of the scheduler that is in the memory of refusals.
    pub remembered_refusal: Option<Str>,
}

impl MemberState {
    pub(in crate::engine) fn new(pod: Pod) -> Self {
        Self {
            pod,
            request: None,
            permit: None,
            must_fence: false,
            must_read: false,
            nominated: None,
            retry: RetryTimer::default(),
            gated_shape: None,
            remembered_refusal: None,
        }
    }

    /// Whether the pod has no gate of this project, is not being deleted and has not failed.
    pub(in crate::engine) fn active(&self) -> bool {
        !self.pod.gated() && !self.pod.terminating && self.pod.phase != PodPhase::Failed
    }

    /// Whether the gate of this project is the only thing that holds the pod back.
    pub(in crate::engine) fn ready(&self) -> bool {
        self.pod.gated() && self.pod.gates.len() == 1 && !self.pod.terminating && !self.pod.finished()
    }

    /// Whether the pod has not ended and is not being deleted.
    pub(in crate::engine) fn live(&self) -> bool {
        !self.pod.terminating && !self.pod.finished()
    }

    /// Whether the pod is lifted, has not ended and is not bound to a node.
    pub(in crate::engine) fn unbound(&self) -> bool {
        !self.pod.gated() && self.pod.node.is_none() && !self.pod.finished()
    }

    /// Whether an earlier lift of the pod may still arrive at the API server.
    pub(in crate::engine) fn may_be_lifted(&self) -> bool {
        self.must_fence || self.request == Some(PodRequest::Lift)
    }
}

/// A request about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum PodRequest {
    Read,
    Fence,
    Nominate,
    TryLift,
    Lift,
}
