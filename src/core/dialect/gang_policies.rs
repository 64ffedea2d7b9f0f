//! Policies of a gang: what the engine does after a timeout, with a stale gang, with a torn gang, and how it
//! places members.
//!
//! Owns the choices, the grace period, and how the annotations are read. Where a policy is missing or cannot
//! be read, the engine uses its own settings.

use std::time::Duration;

use super::duration::{self, GracePeriod};
use crate::model::{Str, quoted, str};
use crate::objects::names;
use crate::objects::view::Meta;

/// What the engine does with a gang that has not started within its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnTimeout {
    /// The gang moves behind the other gangs of its priority and waits again. Each further timeout is twice
    /// as long.
    #[default]
    Requeue,
    /// The engine deletes the pods. All of them are still gated.
    Delete,
}

/// What the engine does with a gang that was complete and has lost members for longer than the grace period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnStale {
    /// The engine deletes the remaining pods, so that the gang can start again as a whole.
    #[default]
    Evict,
    /// The engine leaves the remaining pods alone.
    Keep,
}

/// What the engine does with a gang whose gates are lifted and whose members are not all bound at the
/// deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnTorn {
    /// The engine evicts the members that are not bound, so that their owners create them again, and after
    /// some retries the whole gang.
    #[default]
    Retry,
    /// The engine changes nothing. Members that can still be bound keep their reservation.
    Hold,
    /// The engine deletes the planned members. Their owners create new ones, and the gang can be tried again.
    Evict,
}

/// The policies that a group object states, or a pod where there is no group object. `None` means not stated.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangPolicies {
    /// `portcullis.dev/on-timeout`.
    pub on_timeout: Option<OnTimeout>,
    /// `portcullis.dev/on-stale`.
    pub on_stale: Option<OnStale>,
    /// `portcullis.dev/on-torn`.
    pub on_torn: Option<OnTorn>,
    /// `portcullis.dev/pin`: whether all members are pinned to their planned nodes, also those that need not
    /// be.
    pub pin: Option<bool>,
    /// `portcullis.dev/topology`: a node label. All members go to nodes with one value of it, where such
    /// nodes have capacity.
    pub topology: Option<Str>,
    /// `portcullis.dev/elastic`: whether the gang has as many members as the owners of its pods want.
    pub elastic: Option<bool>,
    /// `portcullis.dev/stale-grace`: how long the engine leaves a stale gang alone.
    pub stale_grace: Option<Duration>,
}

impl GangPolicies {
    /// The policies that follow from a grace period. A grace period without end means [`OnStale::Keep`].
    pub(super) fn from_grace_period(grace: GracePeriod) -> Self {
        match grace {
            GracePeriod::Forever => Self { on_stale: Some(OnStale::Keep), ..Self::default() },
            GracePeriod::For(time) => Self { stale_grace: Some(time), ..Self::default() },
        }
    }

    /// Reads the annotations. A value that cannot be read adds a warning.
    pub(super) fn read(meta: &Meta<'_>, warnings: &mut Vec<String>) -> Self {
        let mut choice_of = |key: &str, known: &[&str]| -> Option<usize> {
            let text = meta.annotations.text(key)?.trim();
            let found = known.iter().position(|value| *value == text);
            if found.is_none()
                && let Some((last, before)) = known.split_last()
            {
                let before = before.join(", ");
                let text = quoted(text);
                warnings
                    .push(format!("{key} is {text}, which is not a known value: write {before} or {last}"));
            }
            found
        };
        let on_torn = choice_of(names::ON_TORN_ANNOTATION, &["retry", "hold", "evict"]);
        let mut choice = |key: &str, known: [&str; 2]| Some(choice_of(key, &known)? == 1);
        let on_timeout = choice(names::ON_TIMEOUT_ANNOTATION, ["requeue", "delete"]);
        let on_stale = choice(names::ON_STALE_ANNOTATION, ["evict", "keep"]);
        let pin = choice(names::PIN_ANNOTATION, ["false", "true"]);
        let elastic = choice(names::ELASTIC_ANNOTATION, ["false", "true"]);
        let grace = meta.annotations.text(names::STALE_GRACE_ANNOTATION).and_then(|text| {
            let read = duration::grace_period(text);
            if read.is_none() {
                warnings.push(duration::invalid_duration(names::STALE_GRACE_ANNOTATION, text));
            }
            read
        });
        let stated = Self {
            on_timeout: on_timeout.map(|delete| if delete { OnTimeout::Delete } else { OnTimeout::Requeue }),
            on_stale: on_stale.map(|keep| if keep { OnStale::Keep } else { OnStale::Evict }),
            on_torn: on_torn.map(|choice| match choice {
                0 => OnTorn::Retry,
                1 => OnTorn::Hold,
                _ => OnTorn::Evict,
            }),
            pin,
            topology: topology(meta, warnings),
            elastic,
            stale_grace: None,
        };
        stated.or(&grace.map(Self::from_grace_period).unwrap_or_default())
    }

    /// Whether no policy is stated.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These policies, with the policies of `other` where none is stated here.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            on_timeout: self.on_timeout.or(other.on_timeout),
            on_stale: self.on_stale.or(other.on_stale),
            on_torn: self.on_torn.or(other.on_torn),
            pin: self.pin.or(other.pin),
            topology: self.topology.or_else(|| other.topology.clone()),
            elastic: self.elastic.or(other.elastic),
            stale_grace: self.stale_grace.or(other.stale_grace),
        }
    }
}

/// The topology label. The value must be a legal label key.
fn topology(meta: &Meta<'_>, warnings: &mut Vec<String>) -> Option<Str> {
    let text = meta.annotations.text(names::TOPOLOGY_ANNOTATION)?.trim();
    let name = text.rsplit('/').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if name.is_empty() || name.len() > 63 || !text.chars().all(fits) {
        warnings.push(format!(
            "{} is {}, which is not a label key: write the key of a node label, such as topology.kubernetes.io/zone",
            names::TOPOLOGY_ANNOTATION,
            quoted(text)
        ));
        return None;
    }
    Some(str(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_values_are_read_and_others_add_a_warning() {
        let check = |timeout: &str, stale: &str, expected: GangPolicies, warnings: &[&str]| {
            let annotations =
                json!({ "portcullis.dev/on-timeout": timeout, "portcullis.dev/on-stale": stale });
            let text = json!({ "annotations": annotations }).to_string();
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let mut found = Vec::new();
            assert_eq!(GangPolicies::read(&meta, &mut found), expected);
            assert_eq!(found, warnings);
        };
        let of = |on_timeout, on_stale| GangPolicies { on_timeout, on_stale, ..GangPolicies::default() };
        check("delete", "keep", of(Some(OnTimeout::Delete), Some(OnStale::Keep)), &[]);
        check("requeue", "evict", of(Some(OnTimeout::Requeue), Some(OnStale::Evict)), &[]);
        check(
            "fail",
            "",
            GangPolicies::default(),
            &[
                "portcullis.dev/on-timeout is \"fail\", which is not a known value: write requeue or delete",
                "portcullis.dev/on-stale is \"\", which is not a known value: write evict or keep",
            ],
        );
    }

    #[test]
    fn the_topology_must_be_a_label_key() {
        let check = |text: &str, expected: Option<&str>| {
            let text = json!({ "annotations": { "portcullis.dev/topology": text } }).to_string();
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let mut warnings = Vec::new();
            assert_eq!(GangPolicies::read(&meta, &mut warnings).topology.as_deref(), expected);
            assert_eq!(warnings.is_empty(), expected.is_some(), "{warnings:?}");
        };
        check("topology.kubernetes.io/zone", Some("topology.kubernetes.io/zone"));
        check(" rack ", Some("rack"));
        check("", None);
        check("in one rack", None);
        check("example.com/", None);
    }

    #[test]
    fn a_grace_period_without_end_keeps_the_remaining_pods() {
        let check = |annotations: serde_json::Value, expected: GangPolicies, warnings: &[&str]| {
            let text = json!({ "annotations": annotations }).to_string();
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let mut found = Vec::new();
            assert_eq!(GangPolicies::read(&meta, &mut found), expected);
            assert_eq!(found, warnings);
        };
        let (default, key) = (GangPolicies::default, "portcullis.dev/stale-grace");
        let five = Some(Duration::from_secs(5));
        check(json!({ key: "5s" }), GangPolicies { stale_grace: five, ..default() }, &[]);
        check(json!({ key: "-1s" }), GangPolicies { on_stale: Some(OnStale::Keep), ..default() }, &[]);
        let evict = json!({ key: "-1s", "portcullis.dev/on-stale": "evict" });
        check(evict, GangPolicies { on_stale: Some(OnStale::Evict), ..default() }, &[]);
        check(
            json!({ key: "soon" }),
            default(),
            &[
                "portcullis.dev/stale-grace is \"soon\", which is not a duration: write seconds (\"120\") or a duration (\"2m\", \"1h30m\")",
            ],
        );
    }
}
