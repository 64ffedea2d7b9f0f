//! Lists in pages, watches from a version, and the lease: what a client reads over time.

use std::collections::VecDeque;
use std::sync::Arc;

use portcullis_core::model::Epoch;
use serde_json::{Value, json};

use super::{ApiServer, ApiStatus, ObjectKey, ObjectKind, TypedObject, WriteRecord};

/// Namespace of the lease of the leader.
pub const LEASE_NAMESPACE: &str = "portcullis";
/// Name of the lease of the leader.
pub const LEASE_NAME: &str = "portcullis";
/// Maximum number of lists with unread pages. Beyond it, the oldest list is compacted.
const MAX_OPEN_LISTS: usize = 64;

/// The rest of a list whose first pages were read.
pub(super) struct OpenList {
    kind: ObjectKind,
    version: u64,
    items: VecDeque<Arc<Value>>,
}

impl ApiServer {
    /// Reads an object.
    ///
    /// # Errors
    /// 404 when it does not exist.
    pub fn read(&self, key: &ObjectKey) -> Result<Arc<Value>, ApiStatus> {
        self.found(key).map(|stored| stored.object.clone())
    }

    /// One page of a list as JSON. All pages of a list show the same version.
    ///
    /// # Errors
    /// 410 when the version of a continue token is compacted.
    pub fn list_page(
        &mut self,
        kind: ObjectKind,
        limit: usize,
        continue_token: &str,
    ) -> Result<String, ApiStatus> {
        let mut list = if continue_token.is_empty() {
            let items = self.list(kind).map(|(_, stored)| stored.object.clone()).collect();
            OpenList { kind, version: self.version, items }
        } else {
            let number = continue_token.parse().unwrap_or(0);
            self.open_lists
                .remove(&number)
                .filter(|list| list.kind == kind && list.version >= self.compacted)
                .ok_or_else(too_old)?
        };
        let count = limit.max(1).min(list.items.len());
        let page: Vec<Arc<Value>> = list.items.drain(..count).collect();
        let version = list.version;
        let mut token = String::new();
        if !list.items.is_empty() {
            self.lists += 1;
            token = self.lists.to_string();
            self.open_lists.insert(self.lists, list);
            if self.open_lists.len() > MAX_OPEN_LISTS {
                self.open_lists.pop_first();
            }
        }
        Ok(json!({
            "metadata": {"resourceVersion": version.to_string(), "continue": token},
            "items": page,
        })
        .to_string())
    }

    /// The lines of a watch of this kind from this version on.
    ///
    /// # Errors
    /// 410 when the version is compacted.
    pub fn changes_since(&self, kind: ObjectKind, version: &str) -> Result<Vec<String>, ApiStatus> {
        let from: u64 = version.parse().unwrap_or(0);
        if from < self.compacted {
            return Err(too_old());
        }
        let missed = self.history.iter().filter(|write| write.key.kind == kind && write.version > from);
        Ok(missed.filter_map(|write| self.watch_line(write)).collect())
    }

    /// The watch event of this write, as one JSON line.
    pub fn watch_line(&self, write: &WriteRecord) -> Option<String> {
        let (what, object) = match (&write.before, &write.after) {
            (None, Some(after)) => ("ADDED", Value::clone(&after.object)),
            (Some(_), Some(after)) => ("MODIFIED", Value::clone(&after.object)),
            (Some(before), None) => {
                // The last state, with the version of the deletion.
                let mut object = Value::clone(&before.object);
                object["metadata"]["resourceVersion"] = json!(write.version.to_string());
                ("DELETED", object)
            }
            (None, None) => return None,
        };
        Some(json!({"type": what, "object": object}).to_string())
    }

    /// A bookmark: a watch event, as one JSON line, with the newest resource version.
    pub fn bookmark_line(&self, kind: ObjectKind) -> String {
        let metadata = json!({"resourceVersion": self.version.to_string()});
        json!({"type": "BOOKMARK", "object": {"kind": kind.as_str(), "metadata": metadata}}).to_string()
    }

    /// The holder of the leader's lease; `None` while it is free or does not exist.
    pub fn lease_holder(&self) -> Option<&str> {
        let TypedObject::Lease(lease) = &self.get(&self.lease_key)?.typed else { return None };
        Some(lease.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// `spec.leaseTransitions` of the leader's lease; zero while it does not exist.
    pub fn lease_transitions(&self) -> Epoch {
        match self.get(&self.lease_key).map(|stored| &stored.typed) {
            Some(TypedObject::Lease(lease)) => Epoch(lease.transitions),
            _ => Epoch::default(),
        }
    }
}

fn too_old() -> ApiStatus {
    ApiStatus::new(410, "Expired", "too old resource version".to_owned())
}
