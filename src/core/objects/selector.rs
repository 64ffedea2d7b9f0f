//! Label selectors, and the namespace and labels of a pod that they select (apimachinery, `LabelSelector`).

use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeMap;

use super::affinity::{Operator, Requirement};
use super::view;
use crate::model::{Str, str};

/// The label that the API server sets on every namespace to its name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Upper bound of the values and requirements of one selector that is evaluated.
const MAX_SELECTOR_PARTS: usize = 1024;

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LabelSelector {
    /// Selects nothing: the meaning of an absent selector in most fields.
    #[default]
    Nothing,
    /// Selects what meets all of these; an empty list selects everything.
    All(Vec<Requirement>),
}

impl LabelSelector {
    /// Reads a selector; an absent one selects nothing.
    pub fn read(view: Option<&view::LabelSelector<'_>>) -> Self {
        let Some(view) = view else { return Self::Nothing };
        let equal = view.match_labels.iter().map(|(key, value)| Requirement {
            key: str(key),
            operator: Operator::In(vec![str(value.as_str())]),
        });
        Self::All(equal.chain(view.match_expressions.iter().map(Requirement::read)).collect())
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::All(requirements) if requirements.is_empty())
    }

    /// Whether it is too large to evaluate for every pod.
    pub fn is_too_large(&self) -> bool {
        let Self::All(requirements) = self else { return false };
        let values = |requirement: &Requirement| match &requirement.operator {
            Operator::In(values) | Operator::NotIn(values) => values.len() + 1,
            _ => 1,
        };
        requirements.iter().map(values).sum::<usize>() > MAX_SELECTOR_PARTS
    }

    /// Adds a requirement. A selector of nothing stays one.
    pub fn add(&mut self, key: &str, operator: Operator) {
        if let Self::All(requirements) = self {
            requirements.push(Requirement { key: str(key), operator });
        }
    }

    /// Whether it selects an object, whose labels the function looks up.
    pub fn matches<'v>(&self, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|r| r.matches(label(&r.key))),
        }
    }
}

/// Namespace and labels of a pod, in one allocation. Every pod of the cluster has one.
///
/// The text is the namespace, then keys and values in the order of the keys, all separated by NUL, which the
/// API server rejects in each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodLabels(Str);

impl PodLabels {
    /// Labels of a pod in a namespace. Of two equal keys the last one counts.
    pub fn new<'l>(namespace: &str, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> Self {
        let sorted: BTreeMap<&str, &str> =
            labels.into_iter().filter(|(key, value)| !key.contains('\0') && !value.contains('\0')).collect();
        let mut text = namespace.replace('\0', "");
        for (key, value) in sorted {
            for part in [key, value] {
                text.push('\0');
                text.push_str(part);
            }
        }
        text.shrink_to_fit();
        Self(str(text))
    }

    /// Reads namespace and labels of an object.
    pub fn read(meta: &view::Meta<'_>) -> Self {
        Self::new(&meta.namespace, meta.labels.iter().map(|(key, value)| (key, value.as_str())))
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.0.split('\0').next().unwrap_or_default()
    }

    /// Keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split('\0').skip(1);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }
}

impl Borrow<str> for PodLabels {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The value of a label of a namespace. The label with its name is known without its labels.
pub(crate) fn namespace_label<'v>(
    name: &'v str,
    labels: Option<&'v BTreeMap<Str, Str>>,
    key: &str,
) -> Option<&'v str> {
    let known = labels.and_then(|labels| labels.get(key)).map(|value| &**value);
    known.or_else(|| (key == NAMESPACE_NAME_LABEL).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_selects_by_labels() {
        let pod = PodLabels::new("ml", [("team", "a"), ("tier", "gpu"), ("empty", "")]);
        assert_eq!((pod.namespace(), pod.get("tier"), pod.get("gpu")), ("ml", Some("gpu"), None));
        let check = |json: &str, expected: bool| {
            let view: view::LabelSelector<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(LabelSelector::read(Some(&view)).matches(|key| pod.get(key)), expected, "{json}");
        };
        check(r#"{}"#, true);
        check(r#"{"matchLabels":{"team":"a"}}"#, true);
        check(r#"{"matchLabels":{"team":"b"}}"#, false);
        check(r#"{"matchLabels":{"empty":""}}"#, true);
        check(r#"{"matchLabels":{"absent":""}}"#, false);
        check(r#"{"matchExpressions":[{"key":"team","operator":"NotIn","values":["b"]}]}"#, true);
        check(r#"{"matchExpressions":[{"key":"absent","operator":"NotIn","values":["b"]}]}"#, true);
        check(r#"{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}"#, false);
        check(r#"{"matchExpressions":[{"key":"team","operator":"in","values":["a"]}]}"#, false);
        assert!(!LabelSelector::read(None).matches(|_| Some("a")), "an absent selector selects nothing");
    }

    #[test]
    fn labels_are_equal_in_any_order() {
        let labels = PodLabels::new("ml", [("b", "2"), ("a", "1"), ("a", "3")]);
        assert_eq!(labels, PodLabels::new("ml", [("a", "3"), ("b", "2")]));
        assert_eq!(PodLabels::default().namespace(), "");
    }
}
