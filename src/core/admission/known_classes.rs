//! The PriorityClasses and RuntimeClasses of the cluster. The cluster edge watches them, admission reads
//! them.

use std::collections::BTreeSet;

use crate::model::Str;

/// The classes that exist in the cluster. `None`: not known, or not known yet. Admission then gives no
/// warning, because a wrong warning is worse than none, and sets no class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownClasses {
    /// Names of all PriorityClasses.
    pub priority_classes: Option<BTreeSet<Str>>,
    /// Names of all RuntimeClasses.
    pub runtime_classes: Option<BTreeSet<Str>>,
}

impl KnownClasses {
    /// Whether this RuntimeClass is known to exist.
    pub(super) fn has_runtime_class(&self, name: &str) -> bool {
        self.runtime_classes.as_ref().is_some_and(|classes| classes.contains(name))
    }

    /// Whether this PriorityClass is known not to exist.
    pub(super) fn lacks_priority_class(&self, name: &str) -> bool {
        self.priority_classes.as_ref().is_some_and(|classes| !classes.contains(name))
    }
}
