//! Label selectors.

use serde_json::Value as Json;

use crate::api::LabelSelector;

#[derive(Clone, Debug, PartialEq)]
enum LabelCondition {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    /// An unknown operator.
    Nothing,
}

/// A compiled label selector. An empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelMatcher {
    requirements: Vec<(String, LabelCondition)>,
}

impl LabelMatcher {
    /// Compiles a selector; an absent one is empty. An unknown operator matches nothing; the loader has
    /// rejected it.
    pub(crate) fn new(spec: Option<&LabelSelector>) -> Self {
        let mut requirements = Vec::new();
        for (key, value) in spec.iter().flat_map(|spec| spec.match_labels.iter().flatten()) {
            requirements.push((key.clone(), LabelCondition::In(vec![value.clone()])));
        }
        for requirement in spec.iter().flat_map(|spec| spec.match_expressions.iter().flatten()) {
            let values = requirement.values.clone().unwrap_or_default();
            let wanted = match requirement.operator.as_str() {
                "NotIn" => LabelCondition::NotIn(values),
                "Exists" => LabelCondition::Exists,
                "DoesNotExist" => LabelCondition::Missing,
                "In" => LabelCondition::In(values),
                _ => LabelCondition::Nothing,
            };
            requirements.push((requirement.key.clone(), wanted));
        }
        Self { requirements }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the `metadata.labels` of an object match.
    pub(crate) fn matches(&self, object: &Json) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.requirements.iter().all(|(key, wanted)| {
            let label = labels.and_then(|labels| labels.get(key)).and_then(Json::as_str);
            match wanted {
                LabelCondition::In(values) => {
                    label.is_some_and(|label| values.iter().any(|value| value == label))
                }
                LabelCondition::NotIn(values) => {
                    label.is_none_or(|label| values.iter().all(|value| value != label))
                }
                LabelCondition::Exists => label.is_some(),
                LabelCondition::Missing => label.is_none(),
                LabelCondition::Nothing => false,
            }
        })
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
