//! Contradictions in a `GangPolicy`: fields that are each valid and do not fit together.

use serde_json::Value as Json;

use super::{count, fields, get, memory, text, texts};
use crate::diagnostic::Diagnostic;

/// Adds errors for contradictions and warnings for fields without effect.
pub(super) fn check(document: &Json, diagnostics: &mut Vec<Diagnostic>) {
    order(document, diagnostics);
    let time = |path: &str| text(document, path).and_then(fields::time);
    if let (Some(usual), Some(longest)) = (time("defaults.timeout"), time("limits.gang.timeout"))
        && usual > longest
    {
        diagnostics.push(Diagnostic::error(
            "/spec/defaults/timeout",
            format!(
                "a gang without a timeout would get {}, more than limits.gang.timeout ({}): lower the default or raise the limit",
                text(document, "defaults.timeout").unwrap_or_default(),
                text(document, "limits.gang.timeout").unwrap_or_default()
            ),
        ));
    }
    if text(document, "defaults.onStale") == Some("keep") && get(document, "defaults.staleGrace").is_some() {
        diagnostics.push(Diagnostic::warning(
            "/spec/defaults/staleGrace",
            "has no effect: defaults.onStale is keep, so a stale gang is never evicted",
        ));
    }
    if text(document, "defaults.staleGrace") == Some("never")
        && text(document, "defaults.onStale") == Some("evict")
    {
        diagnostics.push(Diagnostic::error(
            "/spec/defaults/staleGrace",
            "never keeps a stale gang, but defaults.onStale is evict: remove one of them",
        ));
    }
    schedulers(document, diagnostics);
    let (named, excluded) = (texts(document, "match.namespaces"), texts(document, "match.excludeNamespaces"));
    for (index, name) in excluded.iter().enumerate().filter(|(_, name)| named.contains(name)) {
        let message = format!("{name:?} is in match.namespaces too: remove it from one of them");
        diagnostics.push(Diagnostic::error(format!("/spec/match/excludeNamespaces/{index}"), message));
    }
    let does_something = ["defaults", "limits", "schedulers", "missingGroup", "preemption"];
    let empty = |value: &Json| value.as_object().is_some_and(serde_json::Map::is_empty);
    if !does_something.iter().any(|path| get(document, path).is_some_and(|value| !empty(value))) {
        diagnostics.push(Diagnostic::warning(
            "/spec",
            "this policy does nothing: it has no defaults, limits, schedulers, missingGroup or preemption",
        ));
    }
}

/// Checks that no limit exceeds the limit of a larger unit.
fn order(document: &Json, diagnostics: &mut Vec<Diagnostic>) {
    if let (Some(least), Some(most)) =
        (count(document, "limits.gang.minSize"), count(document, "limits.gang.maxSize"))
        && least > most
    {
        let message =
            format!("no gang can have at least {least} and at most {most} members (limits.gang.maxSize)");
        diagnostics.push(Diagnostic::error("/spec/limits/gang/minSize", message));
    }
    type ReadAmount = fn(&Json, &str) -> Option<u64>;
    for (field, read, unit) in [("gpus", count as ReadAmount, "GPUs"), ("vram", memory as ReadAmount, "MiB")]
    {
        let of = |level: &str| read(document, &format!("limits.{level}.{field}"));
        for (small, large) in [
            ("pod", "gang"),
            ("gang", "namespace"),
            ("gang", "queue"),
            ("pod", "namespace"),
            ("pod", "queue"),
        ] {
            if let (Some(less), Some(more)) = (of(small), of(large))
                && less > more
            {
                let message = format!(
                    "a {small} may ask for {less} {unit}, and a {large} for {more} only (limits.{large}.{field}): this limit is never reached"
                );
                diagnostics.push(Diagnostic::warning(format!("/spec/limits/{small}/{field}"), message));
            }
        }
    }
}

fn schedulers(document: &Json, diagnostics: &mut Vec<Diagnostic>) {
    let unknown = text(document, "schedulers.unknown").unwrap_or("keep");
    let target = text(document, "schedulers.rewriteTo");
    if get(document, "schedulers.known").is_some() && unknown == "keep" {
        let message = "has no effect: schedulers.unknown is keep, so scheduler names are not changed. Set it to rewrite or reject";
        diagnostics.push(Diagnostic::warning("/spec/schedulers/known", message));
    }
    if let Some(target) = target
        && unknown != "rewrite"
    {
        let message =
            format!("has no effect: schedulers.unknown is {unknown}, so no pod is given to {target:?}");
        diagnostics.push(Diagnostic::warning("/spec/schedulers/rewriteTo", message));
    }
}
