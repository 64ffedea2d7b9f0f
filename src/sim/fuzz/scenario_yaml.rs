//! Writes a generated scenario as a file, so that a failing seed can be saved and read.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::scenario::{FaultSpec, NodeSpec, Scenario, SharingSpec, Step, TimeSpan, TornSpec};

/// The scenario as YAML for [`Scenario::parse`]. Objects are JSON, which is also YAML.
pub fn to_yaml(scenario: &Scenario) -> String {
    let mut out = String::new();
    let settings = &scenario.settings;
    let line =
        |out: &mut String, text: &str| writeln!(out, "{text}").expect("writing to a string does not fail");
    line(&mut out, &format!("name: {}", scenario.name));
    let mut values = serde_json::Map::new();
    let mut put = |key: &str, value: Option<Value>| value.map(|value| values.insert(key.to_owned(), value));
    put("replicas", settings.replicas.map(Value::from));
    put("bindTimeout", settings.bind_timeout.map(span));
    put("nominate", settings.nominate.and_then(|n| serde_json::to_value(n).ok()));
    put("pinAll", settings.pin_all.map(Value::from));
    put("sharing", settings.sharing.map(|s| json!(if s == SharingSpec::Any { "any" } else { "labelled" })));
    put(
        "onTorn",
        settings.on_torn.map(|t| {
            json!(match t {
                TornSpec::Retry => "retry",
                TornSpec::Hold => "hold",
                TornSpec::Evict => "evict",
            })
        }),
    );
    put("onTimeout", settings.on_timeout.and_then(|t| serde_json::to_value(t).ok()));
    put("onStale", settings.on_stale.and_then(|s| serde_json::to_value(s).ok()));
    put("staleGrace", settings.stale_grace.map(span));
    put("holdAfter", settings.hold_after.map(span));
    put("reserveFor", settings.reserve_for.map(span));
    put("randomFaults", settings.random_faults.as_ref().and_then(|random| serde_json::to_value(random).ok()));
    line(&mut out, &format!("settings: {}", Value::Object(values)));
    line(&mut out, "cluster:\n  nodes:");
    for spec in &scenario.cluster.nodes {
        line(&mut out, &format!("  - {}", node(spec)));
    }
    line(&mut out, "steps:");
    for spanned in &scenario.steps {
        let step = &spanned.value;
        line(&mut out, &format!("- {}", scalars(step)));
        for (field, objects) in [("apply", &step.objects), ("inject", &step.inject_objects)] {
            if !objects.is_empty() {
                line(&mut out, &format!("  {field}: |"));
                let texts: Vec<String> = objects.iter().map(|object| format!("    {object}")).collect();
                line(&mut out, &texts.join("\n    ---\n"));
            }
        }
    }
    out
}

fn span(span: TimeSpan) -> Value {
    json!(format!("{}ms", span.0.as_millis()))
}

fn node(spec: &NodeSpec) -> Value {
    let mut value =
        json!({"name": spec.name, "cards": spec.cards, "vramMib": spec.vram_mib, "shared": spec.shared});
    for (key, part) in [
        ("timeSliced", spec.time_sliced.map(Value::from)),
        ("pods", spec.pods.map(Value::from)),
        ("cpu", spec.cpu.clone().map(Value::from)),
        ("memory", spec.memory.clone().map(Value::from)),
        ("labels", (!spec.labels.is_empty()).then(|| json!(spec.labels))),
    ] {
        if let Some(part) = part {
            value[key] = part;
        }
    }
    value
}

/// The fields of a step that fit on one line, one per line.
fn scalars(step: &Step) -> String {
    let mut lines = vec![format!("settle: {}", step.settle.unwrap_or(true))];
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            lines.push(format!("{key}: {value}"));
        }
    };
    put("tolerant", step.tolerant.then_some(json!(true)));
    put("stopFaults", step.stop_faults.then_some(json!(true)));
    put("fault", step.fault.as_ref().map(|spanned| fault(&spanned.value)));
    for (key, names) in [
        ("delete", &step.delete),
        ("cordon", &step.cordon),
        ("uncordon", &step.uncordon),
        ("finish", &step.finish),
        ("fail", &step.fail),
        ("crash", &step.crash),
    ] {
        put(key, names.as_ref().map(|names| json!(names.all())));
    }
    put("scale", (!step.scale.is_empty()).then(|| json!(step.scale)));
    put("taint", (!step.taint.is_empty()).then(|| json!(step.taint)));
    put("ungate", (!step.ungate.is_empty()).then(|| json!(step.ungate)));
    put("advance", step.advance.map(span));
    lines.join("\n  ")
}

fn fault(fault: &FaultSpec) -> Value {
    let mut value = serde_json::Map::new();
    let mut put = |key: &str, part: Option<Value>| part.map(|part| value.insert(key.to_owned(), part));
    put("after", fault.after.and_then(|moment| serde_json::to_value(moment).ok()));
    put("count", fault.count.map(Value::from));
    put("killLeader", fault.kill_leader.map(span));
    put("pauseLeader", fault.pause_leader.map(span));
    put("kill", fault.kill.map(Value::from));
    put("pause", fault.pause.map(Value::from));
    put("lasts", fault.lasts.map(span));
    put("jumpClock", fault.jump_clock.map(span));
    put("cordon", fault.cordon.clone().map(Value::from));
    put("nodeLost", fault.node_lost.clone().map(Value::from));
    put("nodeBack", fault.node_back.clone().map(Value::from));
    put("refuseLifts", fault.refuse_lifts.clone().map(Value::from));
    put("acceptLifts", fault.accept_lifts.then_some(json!(true)));
    put("restartScheduler", fault.restart_scheduler.then_some(json!(true)));
    put("breakWatches", fault.break_watches.clone().map(Value::from));
    Value::Object(value)
}
