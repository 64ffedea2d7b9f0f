//! The fields of a `GangPolicy`: path below `spec`, format, default and documentation. The strict reader,
//! `portcullis policy defaults` and the editor schema are generated from this table.

use std::time::Duration;

use portcullis_core::model::{DialectId, Quantity, closest, quoted};
use serde_json::{Map, Value as Json, json};

use crate::checks::label_selector;
use crate::diagnostic::Diagnostic;

/// The format of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldFormat {
    Text,
    Texts,
    Choice(&'static [&'static str]),
    Dialects,
    Flag,
    /// A whole number of at least 1.
    Count,
    /// A positive duration.
    Time,
    /// A duration, or `never`.
    Grace,
    /// A quantity of memory, at least 1 MiB.
    Memory,
    TextMap,
    Selector,
}

/// A field of a `GangPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GangPolicyField {
    /// The path below `spec`. `*` stands for any name: `limits.queues.*.gpus`.
    pub path: &'static str,
    pub(super) format: FieldFormat,
    /// The default as it would be written; in words if it cannot be written.
    pub default: &'static str,
    /// Documentation of the field, one sentence.
    pub summary: &'static str,
}

const fn setting(
    path: &'static str,
    format: FieldFormat,
    default: &'static str,
    summary: &'static str,
) -> GangPolicyField {
    GangPolicyField { path, format, default, summary }
}

/// Namespaces that a `GangPolicy` does not match unless it names them. They must start without Portcullis.
pub(super) const EXCLUDED_NAMESPACES: [&str; 4] =
    ["kube-system", "kube-node-lease", "kube-public", "portcullis-system"];

/// All fields, in the order in which they are documented.
pub const GANG_POLICY_FIELDS: &[GangPolicyField] = &[
    setting(
        "match.namespaces",
        FieldFormat::Texts,
        "all but match.excludeNamespaces",
        "Namespaces that the policy applies to, by name.",
    ),
    setting(
        "match.excludeNamespaces",
        FieldFormat::Texts,
        "[kube-system, kube-node-lease, kube-public, portcullis-system]",
        "Namespaces that the policy does not apply to.",
    ),
    setting("match.namespaceSelector", FieldFormat::Selector, "all", "Labels that the namespace must have."),
    setting(
        "match.objectSelector",
        FieldFormat::Selector,
        "all",
        "Labels that the pod, workload or group object must have.",
    ),
    setting(
        "match.dialects",
        FieldFormat::Dialects,
        "all, and pods in no gang",
        "Stacks whose members and groups the policy applies to.",
    ),
    setting(
        "action",
        FieldFormat::Choice(&["Deny", "Warn", "Audit"]),
        "Deny",
        "What happens to a request that exceeds a limit or breaks a rule: deny it, warn, or only record it.",
    ),
    setting(
        "failurePolicy",
        FieldFormat::Choice(&["Fail", "Ignore"]),
        "Fail",
        "What happens if a required value is unknown, such as the capacity just after a start: deny, or allow.",
    ),
    setting(
        "defaults.timeout",
        FieldFormat::Time,
        "for ever",
        "How long a gang may wait for its start, if neither its group nor its pods set it (annotation portcullis.dev/timeout, scheduleTimeoutSeconds, ...).",
    ),
    setting(
        "defaults.onTimeout",
        FieldFormat::Choice(&["requeue", "delete"]),
        "requeue",
        "What happens to a gang after its timeout: it moves to the end of its queue, or its pods, all still gated, are deleted. Command line: --on-timeout.",
    ),
    setting(
        "defaults.onTorn",
        FieldFormat::Choice(&["retry", "hold", "evict"]),
        "retry",
        "What happens to a torn gang (lifted, but not all members reach a node in time): its unbound members are evicted and tried again, it is kept as it is, or all its members are evicted so that it can start again. Command line: --on-torn.",
    ),
    setting(
        "defaults.onStale",
        FieldFormat::Choice(&["evict", "keep"]),
        "evict",
        "What happens to a stale gang (complete once, then lost members): the rest is deleted so that it can start again as a whole, or is kept. Command line: --on-stale.",
    ),
    setting(
        "defaults.staleGrace",
        FieldFormat::Grace,
        "60s",
        "How long a stale gang is kept before that; `never` keeps it for ever. Command line: --stale-grace.",
    ),
    setting(
        "defaults.elastic",
        FieldFormat::Flag,
        "false",
        "Whether a gang is elastic: it has as many members as the owners of its pods request.",
    ),
    setting(
        "defaults.pin",
        FieldFormat::Flag,
        "false",
        "Whether all members are pinned to their planned nodes, not only members with a share of a card. Command line: --pin-all.",
    ),
    setting(
        "defaults.topology",
        FieldFormat::Text,
        "none",
        "Node label whose value all members share, if the nodes of one value have capacity for all of them: topology.kubernetes.io/zone.",
    ),
    setting(
        "defaults.ordered",
        FieldFormat::Choice(&["keep", "parallel"]),
        "parallel",
        "What happens to a StatefulSet of a gang that creates its pods in order: it keeps its order and capacity is reserved for all pods, or it creates all pods at once.",
    ),
    setting(
        "defaults.runtimeClassName",
        FieldFormat::Text,
        "nvidia for shares of a card, where that class exists",
        "RuntimeClass of pods that ask for GPUs and name no class.",
    ),
    setting(
        "defaults.priorityClassName",
        FieldFormat::Text,
        "none",
        "PriorityClass of pods that name no class.",
    ),
    setting(
        "defaults.nodeSelector",
        FieldFormat::TextMap,
        "none",
        "Node selector labels that pods get unless they set the label themselves: binds a team to its pool.",
    ),
    setting("limits.gang.minSize", FieldFormat::Count, "none", "Smallest number of members of a gang."),
    setting("limits.gang.maxSize", FieldFormat::Count, "none", "Largest number of members of a gang."),
    setting(
        "limits.gang.gpus",
        FieldFormat::Count,
        "none",
        "Most whole GPUs of a gang: from its minResources, or else the GPUs of this pod times the members.",
    ),
    setting(
        "limits.gang.vram",
        FieldFormat::Memory,
        "none",
        "Most memory of shared cards of a gang, counted the same way.",
    ),
    setting("limits.gang.timeout", FieldFormat::Time, "none", "Longest timeout of a gang."),
    setting("limits.pod.gpus", FieldFormat::Count, "none", "Most whole GPUs of a pod."),
    setting(
        "limits.pod.vram",
        FieldFormat::Memory,
        "none",
        "Most memory of shared cards of a pod, over all its cards.",
    ),
    setting(
        "limits.namespace.gpus",
        FieldFormat::Count,
        "none",
        "Most whole GPUs of a namespace, over running and waiting pods.",
    ),
    setting(
        "limits.namespace.vram",
        FieldFormat::Memory,
        "none",
        "Most memory of shared cards of a namespace, over running and waiting pods.",
    ),
    setting(
        "limits.queue.gpus",
        FieldFormat::Count,
        "none",
        "Most whole GPUs of each queue, over running and waiting pods.",
    ),
    setting(
        "limits.queue.vram",
        FieldFormat::Memory,
        "none",
        "Most memory of shared cards of each queue, over running and waiting pods.",
    ),
    setting(
        "limits.queues.*.gpus",
        FieldFormat::Count,
        "limits.queue.gpus",
        "Most whole GPUs of the queue of this name.",
    ),
    setting(
        "limits.queues.*.vram",
        FieldFormat::Memory,
        "limits.queue.vram",
        "Most memory of shared cards of the queue of this name.",
    ),
    setting(
        "missingGroup",
        FieldFormat::Choice(&["wait", "reject"]),
        "wait",
        "What happens to a pod whose group does not exist and that does not set the number of members: it waits for the group, or is denied.",
    ),
    setting(
        "schedulers.known",
        FieldFormat::Texts,
        "[default-scheduler]",
        "Names of schedulers that run in this cluster, besides default-scheduler.",
    ),
    setting(
        "schedulers.unknown",
        FieldFormat::Choice(&["keep", "rewrite", "reject"]),
        "keep",
        "What happens to a pod that names another scheduler: the name is kept, replaced by schedulers.rewriteTo, or the pod is denied. Command line: --rewrite-schedulers.",
    ),
    setting("schedulers.rewriteTo", FieldFormat::Text, "default-scheduler", "Scheduler that these pods get."),
    setting(
        "preemption",
        FieldFormat::Choice(&["allow", "reject"]),
        "allow",
        "What happens to pods whose PriorityClass lets the scheduler evict other pods: they are allowed, or denied.",
    ),
];

/// Whether a field is at or below a path.
fn is_at_or_below(setting: &str, path: &[String]) -> bool {
    let mut steps = setting.split('.');
    path.iter().all(|step| steps.next().is_some_and(|known| known == "*" || known == step))
}

fn at(path: &[String]) -> Option<&'static GangPolicyField> {
    GANG_POLICY_FIELDS
        .iter()
        .find(|setting| setting.path.split('.').count() == path.len() && is_at_or_below(setting.path, path))
}

/// Returns the names of an object's fields; empty if any name is allowed.
fn children(path: &[String]) -> Vec<&'static str> {
    let next = |setting: &'static GangPolicyField| setting.path.split('.').nth(path.len());
    let mut names: Vec<_> = GANG_POLICY_FIELDS
        .iter()
        .filter(|setting| is_at_or_below(setting.path, path))
        .filter_map(next)
        .collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    if names == ["*"] { Vec::new() } else { names }
}

/// Returns the errors in the structure of a `GangPolicy`.
pub(super) fn check(document: &Json) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for (key, value) in document.as_object().into_iter().flatten() {
        match key.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            "spec" => visit(value, &mut Vec::new(), "/spec", &mut diagnostics),
            other => unknown(
                other,
                &["apiVersion", "kind", "metadata", "spec"],
                &format!("/{}", portcullis_text::pointer::escape(other)),
                &mut diagnostics,
            ),
        }
    }
    if document.get("spec").is_none_or(Json::is_null) {
        diagnostics.push(Diagnostic::error(
            "/spec",
            "the field \"spec\" is required: `portcullis policy defaults` shows what can be in it",
        ));
    }
    diagnostics
}

fn unknown(name: &str, known: &[&str], pointer: &str, diagnostics: &mut Vec<Diagnostic>) {
    let meant = closest(name, known.iter().copied()).map(str::to_owned);
    let message = match &meant {
        Some(_) => format!("unknown field {name:?}"),
        None => format!("unknown field {name:?}: the fields are {}", known.join(", ")),
    };
    diagnostics.push(Diagnostic::error(pointer, message).at_key().suggest(meant));
}

fn visit(value: &Json, path: &mut Vec<String>, pointer: &str, diagnostics: &mut Vec<Diagnostic>) {
    if value.is_null() {
        return;
    }
    if let Some(setting) = at(path) {
        return check_value(setting.format, value, pointer, diagnostics);
    }
    let Some(fields) = value.as_object() else {
        return diagnostics.push(Diagnostic::error(pointer, "this must be a mapping"));
    };
    let known = children(path);
    for (name, value) in fields {
        let pointer = format!("{pointer}/{}", portcullis_text::pointer::escape(name));
        if known.is_empty() || known.contains(&name.as_str()) {
            path.push(name.clone());
            visit(value, path, &pointer, diagnostics);
            path.pop();
        } else {
            unknown(name, &known, &pointer, diagnostics);
        }
    }
}

fn check_value(format: FieldFormat, value: &Json, pointer: &str, diagnostics: &mut Vec<Diagnostic>) {
    let text = value.as_str();
    let mut wrong = |message: String| diagnostics.push(Diagnostic::error(pointer, message));
    match format {
        FieldFormat::Text if text.is_none_or(str::is_empty) => wrong("this must be text, a name".to_owned()),
        FieldFormat::Choice(choices) => choice(value, choices, pointer, diagnostics),
        FieldFormat::Flag if !value.is_boolean() => wrong("this must be true or false".to_owned()),
        FieldFormat::Count
            if value.as_u64().is_none_or(|number| number == 0 || i64::try_from(number).is_err()) =>
        {
            wrong("this must be a whole number of at least 1; remove it for no limit".to_owned());
        }
        FieldFormat::Time if text.and_then(time).is_none() => {
            wrong(format!("{} is not a duration: write it like 90s, 30m or 1h30m", shown(value)));
        }
        FieldFormat::Grace if text != Some("never") && text.and_then(time_or_none).is_none() => {
            wrong(format!("{} is not a duration: write it like 0s, 90s or 5m, or never", shown(value)));
        }
        FieldFormat::Memory if memory_mib(value).is_none() => {
            wrong(format!(
                "{} is not a memory quantity: write it like 40Gi or 8000Mi, at least 1Mi",
                shown(value)
            ));
        }
        FieldFormat::Texts | FieldFormat::Dialects => {
            let Some(items) = value.as_array() else { return wrong("this must be a list".to_owned()) };
            if items.is_empty() {
                return wrong("the list is empty: remove it".to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                let pointer = format!("{pointer}/{index}");
                if format == FieldFormat::Dialects {
                    let known: Vec<&str> = DialectId::ALL.iter().map(|id| id.as_str()).collect();
                    choice(item, &known, &pointer, diagnostics);
                } else {
                    check_value(FieldFormat::Text, item, &pointer, diagnostics);
                }
            }
        }
        FieldFormat::TextMap => {
            let Some(entries) = value.as_object() else { return wrong("this must be a mapping".to_owned()) };
            for (key, value) in entries.iter().filter(|(_, value)| !value.is_string()) {
                let message = format!("this must be text, and is {}: put it in quotes", shown(value));
                diagnostics.push(Diagnostic::error(
                    format!("{pointer}/{}", portcullis_text::pointer::escape(key)),
                    message,
                ));
            }
        }
        FieldFormat::Selector => diagnostics.extend(label_selector(value, pointer)),
        FieldFormat::Text
        | FieldFormat::Flag
        | FieldFormat::Count
        | FieldFormat::Time
        | FieldFormat::Grace
        | FieldFormat::Memory => {}
    }
}

fn choice(value: &Json, choices: &[&str], pointer: &str, diagnostics: &mut Vec<Diagnostic>) {
    let text = value.as_str().unwrap_or_default();
    if !choices.contains(&text) {
        let alike = choices.iter().copied().find(|choice| choice.eq_ignore_ascii_case(text));
        let meant = alike.or_else(|| closest(text, choices.iter().copied())).map(str::to_owned);
        let message = format!("{} is not one of {}", shown(value), choices.join(", "));
        diagnostics.push(Diagnostic::error(pointer, message).suggest(meant));
    }
}

/// Returns a value for a message.
fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Object(_) => "a mapping".to_owned(),
        Json::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    }
}

/// Parses a positive duration in Go's format.
pub(super) fn time(text: &str) -> Option<Duration> {
    time_or_none(text).filter(|time| !time.is_zero())
}

/// Parses a duration in Go's format, including zero.
pub(super) fn time_or_none(text: &str) -> Option<Duration> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"hms".contains(&byte));
    let has_unit = text.ends_with(['h', 'm', 's']);
    (is_plain && has_unit).then(|| portcullis_text::duration::parse(text)).flatten()
}

/// Returns MiB of a memory quantity, rounded down.
pub(super) fn memory_mib(value: &Json) -> Option<u64> {
    let quantity = Quantity::parse(value.as_str()?).ok()?;
    Some(quantity.units() >> 20).filter(|mib| *mib > 0)
}

/// Adds a field to the properties of the editor schema.
pub(super) fn add_to_schema(setting: &GangPolicyField, properties: &mut Map<String, Json>) {
    let (parents, name) = setting
        .path
        .rsplit_once('.')
        .map_or((Vec::new(), setting.path), |(parents, name)| (parents.split('.').collect(), name));
    let mut place = properties;
    let mut steps = parents.into_iter().peekable();
    while let Some(step) = steps.next() {
        let object = || json!({ "type": "object", "additionalProperties": false, "properties": {} });
        let open = steps.peek() == Some(&"*");
        let made = place.entry(step).or_insert_with(|| {
            if open { json!({ "type": "object", "additionalProperties": object() }) } else { object() }
        });
        let inner = if open {
            steps.next();
            &mut made["additionalProperties"]
        } else {
            made
        };
        let Some(next) = inner.get_mut("properties").and_then(Json::as_object_mut) else { return };
        place = next;
    }
    let text = json!({ "type": "string" });
    let mut schema = match setting.format {
        FieldFormat::Text | FieldFormat::Time | FieldFormat::Grace | FieldFormat::Memory => text,
        FieldFormat::Texts => json!({ "type": "array", "minItems": 1, "items": text }),
        FieldFormat::Choice(choices) => json!({ "enum": choices }),
        FieldFormat::Dialects => {
            let known: Vec<&str> = DialectId::ALL.iter().map(|id| id.as_str()).collect();
            json!({ "type": "array", "minItems": 1, "items": { "enum": known } })
        }
        FieldFormat::Flag => json!({ "type": "boolean" }),
        FieldFormat::Count => json!({ "type": "integer", "minimum": 1 }),
        FieldFormat::TextMap => json!({ "type": "object", "additionalProperties": text }),
        FieldFormat::Selector => json!({ "type": "object" }),
    };
    schema["description"] = format!("{} Default: {}.", setting.summary, setting.default).into();
    place.insert(name.to_owned(), schema);
}
