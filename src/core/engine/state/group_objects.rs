//! What group objects say about gangs.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialect::{self, Group, GroupKey};
use crate::model::GangId;

/// Descriptions of gangs by group objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct GroupObjects {
    /// The gangs that each group object describes.
    gangs: BTreeMap<GroupKey, BTreeSet<GangId>>,
    /// The descriptions of each gang. The first one applies. There are no empty maps.
    by_gang: BTreeMap<GangId, BTreeMap<GroupKey, Group>>,
}

impl GroupObjects {
    /// The description that applies to a gang: of the gang itself or of its template.
    pub(in crate::engine) fn get(&self, id: &GangId) -> Option<&Group> {
        let first = |id: &GangId| self.by_gang.get(id)?.values().next();
        first(id).or_else(|| first(&dialect::template_group(id)?))
    }

    /// The gangs that a group object describes.
    pub(in crate::engine) fn gangs_of(&self, key: &GroupKey) -> impl Iterator<Item = &GangId> {
        self.gangs.get(key).into_iter().flatten()
    }

    /// All gangs that objects describe, with the description that applies.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (&GangId, &Group)> {
        self.by_gang.iter().filter_map(|(id, groups)| Some((id, groups.values().next()?)))
    }

    /// Replaces the descriptions by an object. `None` removes them. Returns all gangs that it described
    /// before or describes now.
    pub(in crate::engine) fn set(&mut self, key: &GroupKey, groups: Option<Vec<Group>>) -> BTreeSet<GangId> {
        let mut touched = self.gangs.remove(key).unwrap_or_default();
        for id in &touched {
            if let Some(groups) = self.by_gang.get_mut(id) {
                groups.remove(key);
                if groups.is_empty() {
                    self.by_gang.remove(id);
                }
            }
        }
        if let Some(groups) = groups {
            let ids: BTreeSet<GangId> = groups.iter().map(|group| group.gang.clone()).collect();
            for group in groups {
                self.by_gang.entry(group.gang.clone()).or_default().insert(key.clone(), group);
            }
            touched.extend(ids.iter().cloned());
            self.gangs.insert(key.clone(), ids);
        }
        touched
    }
}
