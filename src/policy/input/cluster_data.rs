//! What is known of the cluster beside the request. All of it is JSON of known shape, told by the edge, by a test case or by a file.

use std::collections::BTreeMap;
use std::ops::BitOr;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::input::CapacityReport;

/// What is known of the cluster. `None` and absent mean "not known": an expression that asks for it fails with a sentence, and the
/// `failurePolicy` of its policy says what then happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterData {
    /// Namespaces by name, as the API server gives them.
    pub namespaces: BTreeMap<String, Json>,
    /// Group objects by `KIND.GROUP/NAMESPACE/NAME`, as the API server gives them.
    pub groups: BTreeMap<String, Json>,
    /// `Gang` objects by `NAMESPACE/NAME`, the name being that of the object (`GangId::object_name`).
    pub gangs: BTreeMap<String, Json>,
    /// PriorityClasses by name.
    pub priority_classes: Option<BTreeMap<String, Json>>,
    /// RuntimeClasses by name.
    pub runtime_classes: Option<BTreeMap<String, Json>>,
    /// What the leader publishes: capacity and what is free by GPU model, use by namespace, queue and gang. Shared, because it may be large.
    pub capacity: Option<Arc<CapacityReport>>,
    /// Unix seconds: until when exceptions hold.
    pub now: i64,
}

/// What of a world expressions ask for, beyond what is always known: the rest costs watches and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataDependencies {
    /// [`ClusterData::gangs`] and [`ClusterData::groups`].
    pub gangs: bool,
    /// [`ClusterData::capacity`].
    pub capacity: bool,
}

impl BitOr for DataDependencies {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self { gangs: self.gangs || other.gangs, capacity: self.capacity || other.capacity }
    }
}
