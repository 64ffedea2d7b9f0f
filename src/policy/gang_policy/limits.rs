//! Translates the limits of a `GangPolicy` to validations: an expression, and a message with the field of the
//! policy, the value, the limit and the remedy.

use serde_json::{Value as Json, json};

use super::{count, fields, get, memory, text};

/// A validation of the translated policy.
pub(super) struct LimitRule {
    pub(super) expression: String,
    /// CEL that computes the message.
    message: String,
    reason: &'static str,
}

impl LimitRule {
    /// Returns a validation with the reason `Forbidden`: the object is valid, but exceeds a limit.
    pub(super) fn forbidden(expression: impl Into<String>, message: impl Into<String>) -> Self {
        Self { expression: expression.into(), message: message.into(), reason: "Forbidden" }
    }

    /// Returns the validation as JSON.
    pub(super) fn json(&self) -> Json {
        json!({ "expression": self.expression, "messageExpression": self.message, "reason": self.reason })
    }
}

/// Returns a string as a CEL literal.
pub(super) fn literal(text: &str) -> String {
    Json::from(text).to_string()
}

/// Returns the validations of all limits, in the order of the fields.
pub(super) fn rules(document: &Json, name: &str) -> Vec<LimitRule> {
    let mut rules = Vec::new();
    gang(document, name, &mut rules);
    pod(document, name, &mut rules);
    let refuses = text(document, "failurePolicy") != Some("Ignore");
    for (amount, unit) in [("gpus", "whole GPUs"), ("vram", "MiB of shared cards")] {
        let of = |path: &str| limit(document, &format!("{path}.{amount}"), amount);
        let variable = if amount == "gpus" { "gpus" } else { "vramMiB" };
        // Denying an update does not lower existing usage, so only CREATE is limited.
        let asks = format!("request.operation != 'CREATE' || gang.{variable} == 0");
        if let Some(most) = of("limits.namespace") {
            let rule = TotalLimit {
                of: "quota",
                what: "'namespace ' + quota.namespace",
                path: format!("limits.namespace.{amount}"),
                most,
                variable,
                unit,
            };
            rules.push(rule.rule(&asks, name, refuses));
        }
        let queues = get(document, "limits.queues").and_then(Json::as_object);
        let own: Vec<&str> = queues.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let own: Vec<&str> =
            own.into_iter().filter(|queue| limit_of_queue(document, queue, amount).is_some()).collect();
        let what = "'queue ' + queue.name";
        if let Some(most) = of("limits.queue") {
            let list: Vec<String> = own.iter().map(|queue| literal(queue)).collect();
            let asks = format!("{asks} || queue.name in ['', {}]", list.join(", ")).replace("'', ]", "'']");
            let rule = TotalLimit {
                of: "queue",
                what,
                path: format!("limits.queue.{amount}"),
                most,
                variable,
                unit,
            };
            rules.push(rule.rule(&asks, name, refuses));
        }
        for queue in own {
            let Some(most) = limit_of_queue(document, queue, amount) else { continue };
            let asks = format!("{asks} || queue.name != {}", literal(queue));
            let rule = TotalLimit {
                of: "queue",
                what,
                path: format!("limits.queues.{queue}.{amount}"),
                most,
                variable,
                unit,
            };
            rules.push(rule.rule(&asks, name, refuses));
        }
    }
    rules
}

fn limit(document: &Json, path: &str, amount: &str) -> Option<u64> {
    if amount == "gpus" { count(document, path) } else { memory(document, path) }
}

/// Queue names can contain dots, so they are not steps of a path.
fn limit_of_queue(document: &Json, queue: &str, amount: &str) -> Option<u64> {
    let value = get(document, "limits.queues")?.get(queue)?.get(amount)?;
    if amount == "gpus" { value.as_u64() } else { fields::memory_mib(value) }
}

/// Returns the source of a limit, for the end of every message.
fn policy(name: &str, path: &str) -> String {
    format!("({path} of GangPolicy {name})")
}

/// A limit on a sum over a namespace or queue.
struct TotalLimit<'a> {
    of: &'static str,
    what: &'a str,
    path: String,
    most: u64,
    variable: &'static str,
    unit: &'static str,
}

impl TotalLimit<'_> {
    /// Returns the validation. If the demand is unknown, it denies with a message, or, with `failurePolicy:
    /// Ignore`, fails with an error that is ignored.
    fn rule(&self, unless: &str, name: &str, refuses: bool) -> LimitRule {
        let Self { of, what, path, most, variable, unit } = self;
        let sentence = format!(
            "{what} + ' asks for ' + string({of}.{variable}) + ' {unit} already (' + string({of}.{variable}Running) + ' running, ' + \
             string({of}.{variable}Waiting) + ' waiting); with ' + (gang.named ? 'gang ' + gang.name : 'this object') + ' it would be ' + \
             string({of}.{variable}After) + ', and at most {most} are allowed ' + {}",
            literal(&format!(
                "{}. Wait until one of its pods ends, ask for less, or ask the platform team for a higher limit.",
                policy(name, path)
            ))
        );
        if !refuses {
            return LimitRule::forbidden(format!("{unless} || {of}.{variable}After <= {most}"), sentence);
        }
        let unknown =
            literal(&format!(" are not known yet {}. Try again in a few seconds.", policy(name, path)));
        LimitRule::forbidden(
            format!("{unless} || {of}.known && {of}.{variable}After <= {most}"),
            format!("{of}.known ? {sentence} : 'the {unit} of ' + {what} + {unknown}"),
        )
    }
}

fn gang(document: &Json, name: &str, rules: &mut Vec<LimitRule>) {
    let gang = "'gang ' + gang.name";
    if let Some(least) = count(document, "limits.gang.minSize") {
        let end = format!(
            ", and at least {least} are required {}. Raise the size of the group, or run the pods without a group.",
            policy(name, "limits.gang.minSize")
        );
        rules.push(LimitRule::forbidden(
            format!("!gang.named || !gang.known || gang.min >= {least}"),
            format!(
                "{gang} + ' starts with ' + string(gang.min) + (gang.min == 1 ? ' member' : ' members') + {}",
                literal(&end)
            ),
        ));
    }
    if let Some(most) = count(document, "limits.gang.maxSize") {
        let end = format!(
            " members, and at most {most} are allowed {}. Make the group smaller, or ask the platform team for a higher limit.",
            policy(name, "limits.gang.maxSize")
        );
        rules.push(LimitRule::forbidden(
            format!("gang.min <= {most}"),
            format!("{gang} + ' has ' + string(gang.min) + {}", literal(&end)),
        ));
    }
    for (path, variable, unit) in
        [("limits.gang.gpus", "gpus", "whole GPUs"), ("limits.gang.vram", "vramMiB", "MiB of shared cards")]
    {
        let amount = path.rsplit('.').next().unwrap_or_default();
        let Some(most) = limit(document, path, amount) else { continue };
        let end = format!(
            ", and at most {most} are allowed {}. Ask for less in each pod, or make the group smaller.",
            policy(name, path)
        );
        rules.push(LimitRule::forbidden(
            format!("!gang.named || gang.{variable} <= {most}"),
            format!(
                "{gang} + ' asks for ' + string(gang.{variable}) + ' {unit}' + (gang.min > 1 ? ' with its ' + string(gang.min) + ' members' : '') + {}",
                literal(&end)
            ),
        ));
    }
    if let Some((longest, seconds)) =
        text(document, "limits.gang.timeout").and_then(|text| Some((text, fields::time(text)?.as_secs())))
    {
        let end = format!(
            "s, and at most {longest} is allowed {}. Set a shorter timeout.",
            policy(name, "limits.gang.timeout")
        );
        rules.push(LimitRule::forbidden(
            format!("gang.timeoutSeconds <= {seconds}"),
            format!("{gang} + ' has a timeout of ' + string(gang.timeoutSeconds) + {}", literal(&end)),
        ));
    }
}

fn pod(document: &Json, name: &str, rules: &mut Vec<LimitRule>) {
    if let Some(most) = count(document, "limits.pod.gpus") {
        let end = format!(
            ", and a pod may ask for at most {most} {}. Lower resources.limits, and spread the work over more pods of one gang.",
            policy(name, "limits.pod.gpus")
        );
        rules.push(LimitRule::forbidden(
            format!("gpu.whole <= {most}"),
            format!(
                "'the pod asks for ' + string(gpu.whole) + (gpu.whole == 1 ? ' whole GPU' : ' whole GPUs') + {}",
                literal(&end)
            ),
        ));
    }
    if let Some(most) = memory(document, "limits.pod.vram") {
        let end = format!(
            ", and a pod may ask for at most {most} MiB {}. Lower the annotation gpu-memory.",
            policy(name, "limits.pod.vram")
        );
        rules.push(LimitRule::forbidden(
            format!("gpu.totalVramMiB <= {most}"),
            format!(
                "'the pod asks for ' + string(gpu.totalVramMiB) + ' MiB of shared cards' + (gpu.devices > 1 ? ' on ' + string(gpu.devices) + ' cards' : '') + {}",
                literal(&end)
            ),
        ));
    }
}
