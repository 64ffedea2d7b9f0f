//! One condition of a gang, as in `metav1.Condition`.

use serde::{Deserialize, Serialize};

use crate::model::Time;

/// One entry of `status.conditions` (`metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type. There is one condition of each type.
    #[serde(rename = "type")]
    pub kind: ConditionType,
    /// The status.
    pub status: ConditionStatus,
    /// The reason, as one word.
    pub reason: String,
    /// The reason, as a sentence with numbers.
    pub message: String,
    /// When `status` changed last, in whole seconds, as the API server writes `metav1.Time`.
    pub last_transition_time: Time,
    /// `metadata.generation` of the `Gang` object that this condition describes.
    #[serde(default)]
    pub observed_generation: u64,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionType {
    /// Enough members exist.
    Complete,
    /// Every planned member has a node, and the plan is durable.
    Planned,
    /// Every planned member is bound to a node.
    Admitted,
    /// The gang has started, and after its deadline it is incomplete.
    Torn,
    /// The gang has not started within its timeout. Left out until that has happened once.
    SchedulingTimeout,
    /// The gang was complete and has lost members. Left out until that has happened once.
    Stale,
    /// The PriorityClass that the group names exists. Left out until it was missing once.
    PriorityClassFound,
    /// The owners of the pods determine the number of members. Left out for gangs that are not elastic.
    Elastic,
    /// The pods declare the same size as the group object. Left out until they differed once.
    SizeAgrees,
}

/// The status of a condition. An unknown condition is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
}
