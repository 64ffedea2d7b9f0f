//! Plain: gangs without a stack. `portcullis.dev/gang` names the gang, `portcullis.dev/gang-size` declares
//! its number of members.
//!
//! Both keys are annotations, or labels for users who want to select by them.

use super::dialect_trait::Dialect;
use super::group_reader::{invalid_member_count, parse_member_count};
use super::membership::{Membership, PodDeclaration};
use super::membership_review::MembershipReview;
use super::quorum::Quorum;
use crate::model::{DialectId, Finding, FindingRule, GangId, quoted};
use crate::objects::names;
use crate::objects::view::PodView;

pub(super) struct Plain;

/// The value of a key and the map that has it: the annotation, or else the label.
fn value_of<'p>(pod: &'p PodView<'_>, key: &str) -> Option<(&'static str, &'p str)> {
    let meta = &pod.metadata;
    let annotation = meta.annotations.non_empty(key).map(|text| ("annotations", text));
    annotation.or_else(|| meta.labels.non_empty(key).map(|text| ("labels", text)))
}

impl Dialect for Plain {
    fn id(&self) -> DialectId {
        DialectId::Plain
    }

    fn field(&self) -> &'static str {
        "metadata.annotations[portcullis.dev/gang]"
    }

    fn membership(&self, pod: &PodView<'_>) -> Option<Membership> {
        let (_, name) = value_of(pod, names::GANG_KEY)?;
        let size = value_of(pod, names::GANG_SIZE_KEY).and_then(|(_, size)| parse_member_count(size));
        Some(Membership {
            gang: GangId::new(DialectId::Plain, pod.metadata.namespace.as_str(), name),
            role: None,
            declared: PodDeclaration::read(pod, size.map(Quorum::Count)),
        })
    }

    fn review(&self, pod: &PodView<'_>) -> MembershipReview {
        let mut review = MembershipReview { membership: self.membership(pod), ..MembershipReview::default() };
        let meta = &pod.metadata;
        for key in [names::GANG_KEY, names::GANG_SIZE_KEY] {
            let (annotation, label) = (meta.annotations.text(key), meta.labels.text(key));
            if let (Some(annotation), Some(label)) = (annotation, label)
                && annotation != label
            {
                review.faults.push(Finding {
                    field: format!("metadata.labels[{key}]"),
                    value: label.to_owned(),
                    rule: FindingRule::GroupsDiffer,
                    message: format!(
                        "{} differs from the annotation of the same name ({}). Give both the same value, or remove one of them.",
                        quoted(label),
                        quoted(annotation)
                    ),
                });
            }
        }
        match value_of(pod, names::GANG_SIZE_KEY) {
            Some((map, size)) if parse_member_count(size).is_none() => review.faults.push(Finding {
                field: format!("metadata.{map}[{}]", names::GANG_SIZE_KEY),
                value: size.to_owned(),
                rule: FindingRule::SizeValue,
                message: invalid_member_count(size),
            }),
            Some(_) => {}
            None => review.warnings.push(format!(
                "{} is missing: the gang waits until one of its pods declares the number of members",
                names::GANG_SIZE_KEY
            )),
        }
        review
    }

    fn size_key(&self) -> Option<&'static str> {
        Some(names::GANG_SIZE_KEY)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{membership, review_membership};

    const GANG: &str = names::GANG_KEY;
    const SIZE: &str = names::GANG_SIZE_KEY;

    #[test]
    fn two_keys_declare_a_gang() {
        let check = |annotations: &Value,
                     labels: &Value,
                     expected: Option<(&str, Option<u32>)>,
                     messages: &[&str]| {
            let pod =
                json!({ "metadata": { "namespace": "ml", "labels": labels, "annotations": annotations } });
            let pod = pod.to_string();
            let view: PodView<'_> = serde_json::from_str(&pod).unwrap();
            let review = review_membership(&view);
            assert_eq!(review.membership, membership(&view), "{pod}");
            let found = review.membership.as_ref().map(|m| {
                (&*m.gang.name, m.declared.as_ref().and_then(|d| d.quorum.as_ref()).map(Quorum::min_members))
            });
            assert_eq!(found, expected, "{pod}");
            let faults = review.faults.iter().map(|f| format!("{}: {}", f.field, f.message));
            let found_messages: Vec<_> = review.warnings.iter().cloned().chain(faults).collect();
            assert_eq!(found_messages, messages, "{pod}");
        };
        check(&json!({}), &json!({}), None, &[]);
        check(&json!({ SIZE: "3" }), &json!({}), None, &[]);
        check(&json!({ GANG: "g", SIZE: "3" }), &json!({}), Some(("g", Some(3))), &[]);
        check(&json!({}), &json!({ GANG: "g", SIZE: "3" }), Some(("g", Some(3))), &[]);
        check(&json!({ SIZE: "3" }), &json!({ GANG: "g" }), Some(("g", Some(3))), &[]);
        check(&json!({ GANG: "g", SIZE: "3" }), &json!({ GANG: "g", SIZE: "3" }), Some(("g", Some(3))), &[]);
        check(
            &json!({ GANG: "g" }),
            &json!({}),
            Some(("g", None)),
            &[
                "portcullis.dev/gang-size is missing: the gang waits until one of its pods declares the number of members",
            ],
        );
        check(
            &json!({ GANG: "g", SIZE: "three" }),
            &json!({}),
            Some(("g", None)),
            &[
                r#"metadata.annotations[portcullis.dev/gang-size]: "three" is not a number of members. Write a whole number of at least 1, in quotes."#,
            ],
        );
        check(
            &json!({ GANG: "g", SIZE: "3" }),
            &json!({ GANG: "h" }),
            Some(("g", Some(3))),
            &[
                r#"metadata.labels[portcullis.dev/gang]: "h" differs from the annotation of the same name ("g"). Give both the same value, or remove one of them."#,
            ],
        );
    }
}
