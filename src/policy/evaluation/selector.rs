//! Label selectors.

use portcullis_core::model::str;
use portcullis_core::objects::LabelSelector as CompiledSelector;
use portcullis_core::objects::affinity::{Operator, Requirement};
use serde_json::Value as Json;

use crate::api::LabelSelector;

/// A compiled label selector. An empty one matches everything.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabelMatcher {
    selector: CompiledSelector,
}

impl Default for LabelMatcher {
    fn default() -> Self {
        Self { selector: CompiledSelector::All(Vec::new()) }
    }
}

impl LabelMatcher {
    /// Compiles a selector; an absent one is empty. An unknown operator matches nothing; the loader has
    /// rejected it.
    pub(crate) fn new(spec: Option<&LabelSelector>) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in spec.iter().flat_map(|spec| spec.match_labels.iter().flatten()) {
            requirements.push(Requirement { key: str(key), operator: Operator::In(vec![str(value)]) });
        }
        for requirement in spec.iter().flat_map(|spec| spec.match_expressions.iter().flatten()) {
            let values = || requirement.values.iter().flatten().map(str).collect();
            let operator = match requirement.operator.as_str() {
                "NotIn" => Operator::NotIn(values()),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                "In" => Operator::In(values()),
                _ => Operator::Unknown,
            };
            requirements.push(Requirement { key: str(&requirement.key), operator });
        }
        Self { selector: CompiledSelector::All(requirements) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.selector.is_everything()
    }

    /// Whether the `metadata.labels` of an object match.
    pub(crate) fn matches(&self, object: &Json) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Json::as_str))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::LabelMatcher;

    #[test]
    fn labels_are_selected() {
        let pod = json!({ "metadata": { "labels": { "team": "a", "tier": "gpu" } } });
        for (spec, expected) in [
            (json!({}), true),
            (json!({ "matchLabels": { "team": "a" } }), true),
            (json!({ "matchLabels": { "team": "b" } }), false),
            (json!({ "matchLabels": { "team": "a", "none": "" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "team", "operator": "In", "values": ["b", "a"] }] }),
                true,
            ),
            (json!({ "matchExpressions": [{ "key": "team", "operator": "NotIn", "values": ["a"] }] }), false),
            (json!({ "matchExpressions": [{ "key": "none", "operator": "NotIn", "values": ["a"] }] }), true),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] }), true),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] }), false),
            (json!({ "matchExpressions": [{ "key": "none", "operator": "DoesNotExist" }] }), true),
            (json!({ "matchExpressions": [{ "key": "team", "operator": "in", "values": ["a"] }] }), false),
            (json!({ "matchExpressions": [{ "key": "none", "operator": "Notin", "values": ["a"] }] }), false),
        ] {
            let selector = LabelMatcher::new(serde_json::from_value(spec.clone()).ok().as_ref());
            assert_eq!(selector.matches(&pod), expected, "{spec}");
        }
        assert!(LabelMatcher::new(None).is_empty());
    }
}
