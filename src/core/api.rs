//! Requests to a Kubernetes API server and its responses, as plain values.
//!
//! The engine, the certificate upkeep and the policy status build [`ApiRequest`]s. A client of a real or of a simulated
//! API server sends them and returns an [`ApiResponse`].

use serde_json::Value;

/// A resource type of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiResource {
    /// API group. Empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name, as in the URL path.
    pub plural: &'static str,
}

/// Pods.
pub const PODS: ApiResource = ApiResource { group: "", version: "v1", plural: "pods" };

/// A request about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    /// The operation, with its body.
    pub verb: ApiVerb,
    /// The type of the object.
    pub resource: ApiResource,
    /// Namespace of the object. Empty for a cluster-scoped object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// `status`, or `None` for the object itself.
    pub subresource: Option<&'static str>,
}

/// An operation on an object, with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiVerb {
    /// Reads the object.
    Get,
    /// Creates the object.
    Create(Value),
    /// Replaces the object. `metadata.resourceVersion` in the body is the compare of the compare-and-swap.
    Update(Value),
    /// Applies an `application/json-patch+json` patch.
    JsonPatch(Value),
    /// Applies an `application/merge-patch+json` patch. A `metadata.uid` in the patch must be the UID of the object:
    /// Kubernetes 1.36 answers a wrong one with HTTP 422, other versions with 409.
    MergePatch(Value),
    /// Server-side apply under the field manager of this project, without `force`.
    Apply(Value),
    /// Deletes the object, with `preconditions.uid` and `preconditions.resourceVersion` where they are set.
    Delete {
        /// Delete the object only if it has this UID.
        uid: Option<String>,
        /// Delete the object only at this version.
        resource_version: Option<String>,
    },
}

/// The response of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiResponse {
    /// 2xx: the object after the request, as JSON text. The receiver parses it once, with a view of its own.
    Object(String),
    /// Any other status code, with the message of the returned `Status`.
    Status {
        /// HTTP status code.
        code: u16,
        /// `message` of the returned `Status`.
        message: String,
    },
    /// The client received no response: the API server may or may not have carried out the request.
    Lost,
}
