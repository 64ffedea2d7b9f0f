//! The kinds of `admissionregistration.k8s.io` as far as they are evaluated. Lenient: what is unknown is passed over and what is
//! absent has its default, because whoever reads files has been strict before.

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
    /// What must hold besides.
    pub match_expressions: Option<Vec<LabelRequirement>>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values, for the first two.
    pub values: Option<Vec<String>>,
}

/// Requests that are meant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceRule {
    /// Names of objects; all when empty.
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

/// Which requests a policy or binding is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MatchResources {
    /// Labels of the namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the object, old or new.
    pub object_selector: Option<LabelSelector>,
    /// Requests that are meant.
    pub resource_rules: Option<Vec<ResourceRule>>,
    /// Requests that are not meant in spite of that.
    pub exclude_resource_rules: Option<Vec<ResourceRule>>,
    /// `Exact` or `Equivalent`, which is the default.
    pub match_policy: Option<String>,
}

/// What kind of object a policy takes its parameters from.
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
    /// CEL; `true` when the request is fine.
    pub expression: String,
    /// What is said when it is not.
    pub message: Option<String>,
    /// CEL that makes the message.
    pub message_expression: Option<String>,
    /// `Unauthorized`, `Forbidden`, `Invalid` or `RequestEntityTooLarge`.
    pub reason: Option<String>,
}

/// An annotation of the audit event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuditAnnotation {
    /// The key behind the name of the policy.
    pub key: String,
    /// CEL: a text, or `null` for none.
    pub value_expression: String,
}

/// What the `spec` of either kind of policy has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CommonPolicySpec {
    /// Where parameters come from.
    pub param_kind: Option<ParamKind>,
    /// Which requests are meant.
    pub match_constraints: Option<MatchResources>,
    /// What must hold for the rules or changes to be looked at.
    pub match_conditions: Option<Vec<NamedExpression>>,
    /// Named expressions that rules or changes use.
    pub variables: Option<Vec<NamedExpression>>,
    /// `Fail`, which is the default, or `Ignore`.
    pub failure_policy: Option<String>,
}

/// The `spec` of a `ValidatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValidatingSpec {
    /// What both kinds have.
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
    /// What it says.
    pub spec: ValidatingSpec,
}

/// Which parameters a binding gives its policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ParamRef {
    /// Name of one object.
    pub name: Option<String>,
    /// Its namespace; that of the request when absent.
    pub namespace: Option<String>,
    /// Labels of several objects.
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
    /// Which requests are meant, of those that the policy means.
    pub match_resources: Option<MatchResources>,
    /// `Deny`, `Warn` and `Audit`; of validating bindings.
    pub validation_actions: Option<Vec<String>>,
}

/// A `ValidatingAdmissionPolicyBinding` or `MutatingAdmissionPolicyBinding`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PolicyBinding {
    /// Name.
    pub metadata: PolicyMetadata,
    /// What it says.
    pub spec: BindingSpec,
}

/// An expression in a field of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExpressionField {
    /// CEL.
    pub expression: String,
}

/// A change that a mutating policy makes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MutationSpec {
    /// `ApplyConfiguration` or `JSONPatch`.
    pub patch_type: String,
    /// For the first.
    pub apply_configuration: Option<ExpressionField>,
    /// For the second.
    pub json_patch: Option<ExpressionField>,
}

/// The `spec` of a `MutatingAdmissionPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MutatingSpec {
    /// What both kinds have.
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
    /// What it says.
    pub spec: MutatingSpec,
}
