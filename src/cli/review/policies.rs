//! Evaluates policy files in `review`: mutating policies before the gate, validating ones after it, and all
//! other objects.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use portcullis_core::dialect;
use portcullis_policy::{
    AdmissionOutcome, AdmissionRequest, ClusterData, Denial, ValidationResult, field_and_detail,
};
use serde_json::Value;

use super::super::manifest::{Document, pointer_of};
use super::super::policy_set::{LoadedPolicies, ensure_namespace, read_cluster_data};
use super::items::{ItemContent, ReviewItem};
use super::pod_review::review_of;
use super::{PolicyRule, ReviewCause};

/// A policy set with cluster facts, or nothing without `--policies`.
pub(super) struct PolicyReviewer(Option<(LoadedPolicies, ClusterData)>);

impl PolicyReviewer {
    /// Loads the policies. Prints their errors and returns `None` if they are invalid.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn load(policies: &[PathBuf], cluster: &[PathBuf]) -> Result<Option<Self>> {
        if policies.is_empty() {
            return Ok(Some(Self(None)));
        }
        let Some(rules) = LoadedPolicies::load(policies)? else { return Ok(None) };
        Ok(Some(Self(Some((rules, read_cluster_data(cluster)?)))))
    }

    /// Evaluates a review, with at least the name of its namespace known. Returns `None` without policies.
    fn evaluate<T>(
        &self,
        review: &Value,
        evaluate: impl FnOnce(&LoadedPolicies, &AdmissionRequest<'_>, &ClusterData) -> T,
    ) -> Option<T> {
        let (rules, data) = self.0.as_ref()?;
        let request = AdmissionRequest::from_review(review)?;
        let mut data = data.clone();
        ensure_namespace(&mut data, request.namespace());
        Some(evaluate(rules, &request, &data))
    }

    /// Returns the object as changed by mutating policies, or `None` if they do not change it.
    ///
    /// # Errors
    /// The denials.
    pub(super) fn mutate(&self, review: &Value) -> Result<Option<Value>, Vec<Denial>> {
        let mutation = self.evaluate(review, |rules, request, data| rules.set.mutate(request, data));
        match mutation {
            None => Ok(None),
            Some(mutation) if mutation.denials.is_empty() => Ok(mutation.object),
            Some(mutation) => Err(mutation.denials),
        }
    }

    /// Evaluates the validating policies.
    pub(super) fn validate(&self, review: &Value) -> ValidationResult {
        self.evaluate(review, |rules, request, data| rules.set.validate(request, data)).unwrap_or_default()
    }

    /// Returns denials as causes, each with the location of its rule. `cause` adds the line of the manifest.
    pub(super) fn causes(
        &self,
        denials: &[Denial],
        cause: &dyn Fn(&str, String) -> ReviewCause,
    ) -> Vec<ReviewCause> {
        let rules = self.0.as_ref().map(|(rules, _)| rules);
        let one = |denial: &Denial| {
            let (field, detail) = field_and_detail(denial);
            let rule = PolicyRule {
                policy: denial.policy.clone(),
                place: rules.and_then(|rules| rules.rule_location(denial)),
            };
            ReviewCause { rule: Some(rule), ..cause(field.unwrap_or_default(), detail.to_owned()) }
        };
        denials.iter().map(one).collect()
    }

    fn review_object(&self, document: &Document, found: &ReviewItem) -> Option<PolicyReply> {
        let ReviewItem { pointer, kind, namespace, .. } = found;
        let object = document.value.pointer(pointer)?;
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let review = review_of(namespace, [group, version, kind, &plural(group, kind)], object);
        let through = self.evaluate(&review, |rules, request, data| {
            AdmissionOutcome::evaluate(&rules.set, request, data)
        })?;
        let denials: Vec<Denial> = through.denials().cloned().collect();
        let cause = |field: &str, message: String| ReviewCause {
            line: document.line(&format!("{pointer}{}", pointer_of(object, field))),
            field: field.to_owned(),
            message,
            rule: None,
        };
        Some(PolicyReply {
            causes: self.causes(&denials, &cause),
            warnings: through.validation.user_warnings(),
        })
    }
}

/// The answer of policies to an object that is not a pod.
pub(super) struct PolicyReply {
    /// Causes of a denial; empty if allowed.
    pub(super) causes: Vec<ReviewCause>,
    /// Warnings for kubectl.
    pub(super) warnings: Vec<String>,
}

/// Evaluates policies for all objects of a document that are not pods. The keys are JSON pointers.
pub(super) fn review_other_objects(
    document: &Document,
    found: &[ReviewItem],
    reviewer: &PolicyReviewer,
) -> BTreeMap<String, PolicyReply> {
    let is_other = |found: &&ReviewItem| match &found.what {
        ItemContent::Pod(_) => found.template.is_some(),
        ItemContent::Group(Ok(_)) | ItemContent::Other(_) => true,
        ItemContent::Group(Err(_)) | ItemContent::Unreadable(_) => false,
    };
    let mut replies = BTreeMap::new();
    for found in found.iter().filter(is_other) {
        if !replies.contains_key(&found.pointer)
            && let Some(one) = reviewer.review_object(document, found)
        {
            replies.insert(found.pointer.clone(), one);
        }
    }
    replies
}

/// Returns the plural of a kind: that of a known group, or as Kubernetes forms it.
fn plural(group: &str, kind: &str) -> String {
    let known =
        dialect::group_kinds().map(|known| known.resource()).find(|r| (r.group, r.kind) == (group, kind));
    if let Some(known) = known {
        return known.plural.to_owned();
    }
    let word = kind.to_ascii_lowercase();
    if word.ends_with(['s', 'x']) || word.ends_with("ch") {
        format!("{word}es")
    } else if let Some(stem) = word.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        format!("{stem}ies")
    } else {
        format!("{word}s")
    }
}

#[cfg(test)]
mod tests {
    use super::plural;

    #[test]
    fn plurals_match_those_of_kubernetes() {
        let check = |group: &str, kind: &str, expected: &str| assert_eq!(plural(group, kind), expected);
        check("apps", "Deployment", "deployments");
        check("networking.k8s.io", "NetworkPolicy", "networkpolicies");
        check("networking.k8s.io", "Ingress", "ingresses");
        check("gateway.networking.k8s.io", "Gateway", "gateways");
        check("scheduling.run.ai", "PodGroup", "podgroups");
    }
}
