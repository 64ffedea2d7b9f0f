//! The admission request: the `request` of an `AdmissionReview`, as borrowed JSON.

use serde_json::Value as Json;

use crate::json::text;

/// Group, version and resource, as in Kubernetes' `GroupVersionResource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersionResource<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Plural name: `pods`.
    pub resource: &'a str,
}

/// The `request` of an `AdmissionReview`. The JSON is borrowed and never converted, because most requests
/// touch few of its fields.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    /// The whole request.
    pub json: &'a Json,
}

impl<'a> AdmissionRequest<'a> {
    /// Returns the request of an `AdmissionReview`, or `None` if it has none.
    #[must_use]
    pub fn from_review(review: &'a Json) -> Option<Self> {
        review.get("request").filter(|request| request.is_object()).map(|json| Self { json })
    }

    fn text(&self, pointer: &str) -> &'a str {
        text(self.json, pointer)
    }

    fn present(&self, key: &str) -> Option<&'a Json> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    /// The new object; none on DELETE.
    #[must_use]
    pub fn object(&self) -> Option<&'a Json> {
        self.present("object")
    }

    /// The stored object; none on CREATE.
    #[must_use]
    pub fn old_object(&self) -> Option<&'a Json> {
        self.present("oldObject")
    }

    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[must_use]
    pub fn operation(&self) -> &'a str {
        self.text("/operation")
    }

    /// Namespace; empty for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &'a str {
        self.text("/namespace")
    }

    /// Name; empty if the API server has not generated it yet (`generateName`).
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.text("/name")
    }

    /// Subresource; empty for the object itself.
    #[must_use]
    pub fn sub_resource(&self) -> &'a str {
        self.text("/subResource")
    }

    /// Kind of the object.
    #[must_use]
    pub fn kind(&self) -> &'a str {
        self.text("/kind/kind")
    }

    /// Group, version and resource of the request, in the version in which the object came.
    #[must_use]
    pub fn resource(&self) -> GroupVersionResource<'a> {
        GroupVersionResource {
            group: self.text("/resource/group"),
            version: self.text("/resource/version"),
            resource: self.text("/resource/resource"),
        }
    }
}
