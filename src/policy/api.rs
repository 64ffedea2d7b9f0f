//! The kinds of `admissionregistration.k8s.io`, with the fields that an evaluation needs.
//!
//! Reading is lenient: unknown fields are ignored and absent fields have their default. The loader has
//! rejected both before, see `checks`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The `metadata` of a policy or binding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PolicyMetadata {
    /// Name.
    pub name: String,
}

/// A selector over labels.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have these values.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Further requirements; all of them must hold.
    pub match_expressions: Option<Vec<LabelRequirement>>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct LabelRequirement {
    /// The label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    pub values: Option<Vec<String>>,
}

/// Selects requests by operation and resource.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRule {
    /// Names of objects; all objects if empty.
    pub resource_names: Option<Vec<String>>,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `*`.
    pub operations: Option<Vec<String>>,
    /// API groups or `*`.
    pub api_groups: Option<Vec<String>>,
    /// API versions or `*`.
    pub api_versions: Option<Vec<String>>,
    /// Resources with their subresources: `pods`, `pods/status`, `*/scale`, `*`.
    pub resources: Option<Vec<String>>,
    /// `Cluster`, `Namespaced` or `*`.
    pub scope: Option<String>,
}

/// Which requests a policy or binding applies to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MatchResources {
    /// Selects the namespace by its labels.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects the object by its labels; the old or the new object must match.
    pub object_selector: Option<LabelSelector>,
    /// Requests that match; one rule is enough.
    pub resource_rules: Option<Vec<ResourceRule>>,
    /// Requests that do not match, although `resource_rules` select them.
    pub exclude_resource_rules: Option<Vec<ResourceRule>>,
    /// `Exact` or `Equivalent`, which is the default.
    pub match_policy: Option<String>,
}

/// The kind of the objects that a policy takes its parameters from.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default, rename_all = "camelCase")]
pub struct ParamKind {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// A named expression: a match condition or a variable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamedExpression {
    /// Name.
    pub name: String,
    /// CEL.
    pub expression: String,
}

/// A rule of a validating policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Validation {
    /// CEL. `true` allows the request.
    pub expression: String,
    /// The message of the denial.
    pub message: Option<String>,
    /// CEL that computes the message.
    pub message_expression: Option<String>,
    /// `Unauthorized`, `Forbidden`, `Invalid` or `RequestEntityTooLarge`.
    pub reason: Option<String>,
}

/// An annotation of the audit event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuditAnnotation {
    /// The key, without the policy's name that the API server puts before it.
    pub key: String,
    /// CEL that returns a string, or `null` for no annotation.
    pub value_expression: String,
}

/// The part of `spec` that validating and mutating policies share.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CommonPolicySpec {
    /// The kind of the parameter objects.
    pub param_kind: Option<ParamKind>,
    /// Which requests match.
    pub match_constraints: Option<MatchResources>,
    /// Conditions that must hold before the API server evaluates rules or changes.
    pub match_conditions: Option<Vec<NamedExpression>>,
    /// Named expressions that rules and changes can use.
    pub variables: Option<Vec<NamedExpression>>,
    /// `Fail` (the default) or `Ignore`.
    pub failure_policy: Option<String>,
}

/// The `spec` of a `ValidatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValidatingSpec {
    /// The fields that both kinds of policies have.
    #[serde(flatten)]
    pub common: CommonPolicySpec,
    /// The rules.
    pub validations: Option<Vec<Validation>>,
    /// Annotations of the audit event.
    pub audit_annotations: Option<Vec<AuditAnnotation>>,
}

/// A `ValidatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ValidatingAdmissionPolicy {
    /// Name.
    pub metadata: PolicyMetadata,
    /// The specification.
    pub spec: ValidatingSpec,
}

/// Which parameter objects a binding gives its policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ParamRef {
    /// Name of one parameter object.
    pub name: Option<String>,
    /// Its namespace; the namespace of the request if absent.
    pub namespace: Option<String>,
    /// Selects parameter objects by their labels.
    pub selector: Option<LabelSelector>,
    /// `Allow` or `Deny`.
    pub parameter_not_found_action: Option<String>,
}

/// The `spec` of a binding, validating or mutating.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BindingSpec {
    /// Name of the policy.
    pub policy_name: String,
    /// Its parameters.
    pub param_ref: Option<ParamRef>,
    /// Restricts the requests that the policy matches.
    pub match_resources: Option<MatchResources>,
    /// `Deny`, `Warn` and `Audit`; only validating bindings have them.
    pub validation_actions: Option<Vec<String>>,
}

/// A `ValidatingAdmissionPolicyBinding` or `MutatingAdmissionPolicyBinding`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PolicyBinding {
    /// Name.
    pub metadata: PolicyMetadata,
    /// The specification.
    pub spec: BindingSpec,
}

/// An object with the single field `expression`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExpressionField {
    /// CEL.
    pub expression: String,
}

/// One change of a mutating policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MutationSpec {
    /// `ApplyConfiguration` or `JSONPatch`.
    pub patch_type: String,
    /// The expression of `ApplyConfiguration`.
    pub apply_configuration: Option<ExpressionField>,
    /// The expression of `JSONPatch`.
    pub json_patch: Option<ExpressionField>,
}

/// The `spec` of a `MutatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MutatingSpec {
    /// The fields that both kinds of policies have.
    #[serde(flatten)]
    pub common: CommonPolicySpec,
    /// The changes, in order.
    pub mutations: Option<Vec<MutationSpec>>,
    /// `Never` or `IfNeeded`.
    pub reinvocation_policy: Option<String>,
}

/// A `MutatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MutatingAdmissionPolicy {
    /// Name.
    pub metadata: PolicyMetadata,
    /// The specification.
    pub spec: MutatingSpec,
}
