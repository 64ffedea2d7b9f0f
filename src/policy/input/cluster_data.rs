//! Data about the cluster that policies can use besides the request.

use std::collections::BTreeMap;
use std::ops::BitOr;
use std::sync::Arc;

use portcullis_core::capacity::CapacityReport;
use serde_json::Value as Json;

/// The data about the cluster that an evaluation can use, as JSON objects. The cluster edge, a test case or a
/// file provides them.
///
/// `None` or an absent entry means "unknown". An expression that reads unknown data fails with a message, and
/// the `failurePolicy` of its policy decides what follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterData {
    /// Namespaces by name, as the API server returns them.
    pub namespaces: BTreeMap<String, Json>,
    /// Group objects by `KIND.GROUP/NAMESPACE/NAME`, as the API server returns them.
    pub groups: BTreeMap<String, Json>,
    /// `Gang` objects by `NAMESPACE/NAME`, where the name is `GangId::object_name`.
    pub gangs: BTreeMap<String, Json>,
    /// PriorityClasses by name.
    pub priority_classes: Option<BTreeMap<String, Json>>,
    /// RuntimeClasses by name.
    pub runtime_classes: Option<BTreeMap<String, Json>>,
    /// The leader's report of GPU capacity and usage. Shared, because it can be large.
    pub capacity: Option<Arc<CapacityReport>>,
    /// The current time in Unix seconds. It decides which exceptions have expired.
    pub now: i64,
}

/// The parts of [`ClusterData`] that expressions read and that cost watches or requests. The other parts are
/// always provided.
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
