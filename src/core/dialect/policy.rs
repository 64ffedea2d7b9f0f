//! What becomes of a gang that does not start in time, that starts in part, or that has fallen apart: the words for it, and where
//! they stand.
//!
//! Owns the choices, the time of grace, and how they are read. What is not said, or not understood, is as the program
//! is set.

use std::time::Duration;

use super::duration::{self, Grace};
use crate::model::{Str, quoted, str};
use crate::objects::names;
use crate::objects::view::Meta;

/// What becomes of a gang that has not started within its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnTimeout {
    /// It goes on waiting, behind the others of its priority, and each further try lasts twice as long.
    #[default]
    Requeue,
    /// Its pods, all of them still gated, are deleted.
    Delete,
}

/// What becomes of a gang that was whole and is not any more, when it has been so for the time of grace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnStale {
    /// The pods that are left are deleted, so that it can start again as a whole.
    #[default]
    Evict,
    /// They are left alone.
    Keep,
}

/// What becomes of a gang that is lifted and, past its deadline, not bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnTorn {
    /// It is left as it is, and what can still be bound stays reserved.
    #[default]
    Hold,
    /// Its planned members are deleted, so that their owners make new ones and the gang can be tried again.
    Evict,
}

/// What a group object, or where there is none a pod, says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Policies {
    /// `portcullis.dev/on-timeout`.
    pub on_timeout: Option<OnTimeout>,
    /// `portcullis.dev/on-stale`.
    pub on_stale: Option<OnStale>,
    /// `portcullis.dev/on-torn`.
    pub on_torn: Option<OnTorn>,
    /// `portcullis.dev/pin`: whether its members are tied to their planned nodes, also those that need not be.
    pub pin: Option<bool>,
    /// `portcullis.dev/topology`: the node label of which all members are to meet one value, where one has room for all.
    pub topology: Option<Str>,
    /// `portcullis.dev/elastic`: whether it takes as many members as the owners of its pods want.
    pub elastic: Option<bool>,
    /// `portcullis.dev/stale-grace`: for how long a gang that is not whole any more is left as it is.
    pub stale_grace: Option<Duration>,
}

impl Policies {
    /// Of a time of grace.
    pub(super) fn of_grace(grace: Grace) -> Self {
        match grace {
            Grace::Never => Self { on_stale: Some(OnStale::Keep), ..Self::default() },
            Grace::For(time) => Self { stale_grace: Some(time), ..Self::default() },
        }
    }

    /// Reads all of it, and notes what is not understood.
    pub(super) fn read(meta: &Meta<'_>, doubts: &mut Vec<String>) -> Self {
        let mut choice = |key: &str, known: [&str; 2]| -> Option<bool> {
            let text = meta.annotations.text(key)?.trim();
            let second = text == known[1];
            if !second && text != known[0] {
                doubts.push(format!(
                    "{key} is {}, and not understood: write {} or {}",
                    quoted(text),
                    known[0],
                    known[1]
                ));
                return None;
            }
            Some(second)
        };
        let on_timeout = choice(names::ON_TIMEOUT_ANNOTATION, ["requeue", "delete"]);
        let on_stale = choice(names::ON_STALE_ANNOTATION, ["evict", "keep"]);
        let on_torn = choice(names::ON_TORN_ANNOTATION, ["hold", "evict"]);
        let pin = choice(names::PIN_ANNOTATION, ["false", "true"]);
        let elastic = choice(names::ELASTIC_ANNOTATION, ["false", "true"]);
        let grace = meta.annotations.text(names::STALE_GRACE_ANNOTATION).and_then(|text| {
            let read = duration::grace(text);
            if read.is_none() {
                doubts.push(duration::doubt(names::STALE_GRACE_ANNOTATION, text));
            }
            read
        });
        let said = Self {
            on_timeout: on_timeout.map(|delete| if delete { OnTimeout::Delete } else { OnTimeout::Requeue }),
            on_stale: on_stale.map(|keep| if keep { OnStale::Keep } else { OnStale::Evict }),
            on_torn: on_torn.map(|evict| if evict { OnTorn::Evict } else { OnTorn::Hold }),
            pin,
            topology: topology(meta, doubts),
            elastic,
            stale_grace: None,
        };
        said.or(&grace.map(Self::of_grace).unwrap_or_default())
    }

    /// Whether nothing of it is said.
    pub(super) fn silent(&self) -> bool {
        *self == Self::default()
    }

    /// What is said here, and what is not as `other` says.
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

/// The label of a topology, which has to be one that a node can have.
fn topology(meta: &Meta<'_>, doubts: &mut Vec<String>) -> Option<Str> {
    let text = meta.annotations.text(names::TOPOLOGY_ANNOTATION)?.trim();
    let name = text.rsplit('/').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if name.is_empty() || name.len() > 63 || !text.chars().all(fits) {
        doubts.push(format!(
            "{} is {}, and no label of a node: write its key, such as topology.kubernetes.io/zone",
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
    fn both_are_read_and_what_is_not_understood_is_said() {
        let check = |timeout: &str, stale: &str, expected: Policies, doubts: &[&str]| {
            let annotations =
                json!({ "portcullis.dev/on-timeout": timeout, "portcullis.dev/on-stale": stale });
            let text = json!({ "annotations": annotations }).to_string();
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let mut found = Vec::new();
            assert_eq!(Policies::read(&meta, &mut found), expected);
            assert_eq!(found, doubts);
        };
        let of = |on_timeout, on_stale| Policies { on_timeout, on_stale, ..Policies::default() };
        check("delete", "keep", of(Some(OnTimeout::Delete), Some(OnStale::Keep)), &[]);
        check("requeue", "evict", of(Some(OnTimeout::Requeue), Some(OnStale::Evict)), &[]);
        check(
            "fail",
            "",
            Policies::default(),
            &[
                "portcullis.dev/on-timeout is \"fail\", and not understood: write requeue or delete",
                "portcullis.dev/on-stale is \"\", and not understood: write evict or keep",
            ],
        );
    }

    #[test]
    fn a_topology_is_the_key_of_a_label() {
        let check = |text: &str, expected: Option<&str>| {
            let text = json!({ "annotations": { "portcullis.dev/topology": text } }).to_string();
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let mut doubts = Vec::new();
            assert_eq!(Policies::read(&meta, &mut doubts).topology.as_deref(), expected);
            assert_eq!(doubts.is_empty(), expected.is_some(), "{doubts:?}");
        };
        check("topology.kubernetes.io/zone", Some("topology.kubernetes.io/zone"));
        check(" rack ", Some("rack"));
        check("", None);
        check("in one rack", None);
        check("example.com/", None);
    }

    #[test]
    fn a_grace_without_end_keeps_what_is_left() {
        let check = |annotations: serde_json::Value, expected: Policies, doubts: &[&str]| {
            let text = json!({ "annotations": annotations }).to_string();
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let mut found = Vec::new();
            assert_eq!(Policies::read(&meta, &mut found), expected);
            assert_eq!(found, doubts);
        };
        let (usual, key) = (Policies::default, "portcullis.dev/stale-grace");
        let five = Some(Duration::from_secs(5));
        check(json!({ key: "5s" }), Policies { stale_grace: five, ..usual() }, &[]);
        check(json!({ key: "-1s" }), Policies { on_stale: Some(OnStale::Keep), ..usual() }, &[]);
        let evict = json!({ key: "-1s", "portcullis.dev/on-stale": "evict" });
        check(evict, Policies { on_stale: Some(OnStale::Evict), ..usual() }, &[]);
        check(
            json!({ key: "soon" }),
            usual(),
            &[
                "portcullis.dev/stale-grace is \"soon\", and not understood: write seconds (\"120\") or a duration (\"2m\", \"1h30m\")",
            ],
        );
    }
}
