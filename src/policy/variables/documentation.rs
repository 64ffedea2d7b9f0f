//! Generates the documentation of the variables as Markdown.

use std::fmt::Write as _;

use super::definitions::{FieldType, STRUCTURES, TypeDefinition, VARIABLES};

const INTRODUCTION: &str = "\
# Variables

Made by `portcullis policy variables`; do not edit.

Every CEL expression of a policy file can use these besides `object`, `oldObject`, `request`, `params`, `namespaceObject` and `variables`. The API server has
none of them: a policy that uses one runs here and cannot be moved there.

- All are read-only, and computed once for each request when an expression first asks for them. No policy does I/O.
- `gang` and `gpu` speak of the pod of the request. Of a workload (Deployment, StatefulSet, DaemonSet, Job, CronJob, and any other kind with exactly one pod
  template in its spec) they speak of that template, so that a rule can refuse at `kubectl apply` of the Deployment what it would refuse for its pods: match
  the kind in `matchConstraints`. A kind with several templates (PyTorchJob, JobSet) is not looked into; its pods are judged when they are made. On DELETE they
  speak of the object that goes.
- A mutating policy meets them as the object came, before any policy has changed it; a validating one as the object will be.
- What is not known is an error with a sentence, and the policy's `failurePolicy` says what happens then: `Fail` refuses, `Ignore` lets it in. `known` tells
  before you ask.
- `quota`, `queue` and `cluster` are what the leading replica last told, a few seconds old. They are for limits that people run into, not for a promise: pods
  that are made within these seconds may pass together. A hard limit is a ResourceQuota.
";

/// Returns the content of `policies/VARIABLES.md`.
#[must_use]
pub fn documentation() -> String {
    let mut page = INTRODUCTION.to_owned();
    for variable in VARIABLES {
        let _ = write!(page, "\n## {}\n\n{}\n", variable.name, variable.summary);
        let _ = write!(page, "\n```cel\n{}\n```\n", variable.example);
        match variable.kind {
            FieldType::Structure(name) => fields(&mut page, &format!("{}.", variable.name), name),
            FieldType::Map(name) => {
                let _ = writeln!(page, "\nType: {}.", shown(variable.kind));
                fields(&mut page, &format!("{}[name].", variable.name), name);
            }
            other => {
                let _ = writeln!(page, "\nType: {}.", shown(other));
            }
        }
    }
    page
}

fn fields(page: &mut String, prefix: &str, name: &str) {
    let Some(TypeDefinition { fields: of, .. }) = STRUCTURES.iter().find(|structure| structure.name == name)
    else {
        return;
    };
    page.push_str("\n| field | type | what it says |\n|---|---|---|\n");
    for field in *of {
        let _ = writeln!(page, "| `{prefix}{}` | {} | {} |", field.name, shown(field.kind), field.summary);
    }
    for field in *of {
        if let FieldType::Map(inner) = field.kind {
            fields(page, &format!("{prefix}{}[model].", field.name), inner);
        }
    }
}

fn shown(kind: FieldType) -> &'static str {
    match kind {
        FieldType::Bool => "bool",
        FieldType::Int => "int",
        FieldType::Double => "double",
        FieldType::Text => "string",
        FieldType::Texts => "list(string)",
        FieldType::Structure(_) => "fields",
        FieldType::Map(_) => "map by name",
    }
}
