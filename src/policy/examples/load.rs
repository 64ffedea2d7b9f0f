//! Measures the load time and the memory of a policy set:
//! `cargo run --release -p portcullis-policy --example load [FILE...]`.
//! Without files it generates 500 policies of typical size: some 200 characters of CEL in two or three
//! expressions.

#![expect(clippy::disallowed_methods, reason = "the example measures time and memory")]

use std::fs;
use std::time::Instant;

use portcullis_policy::{SourceFile, load, render_problems};

const POLICIES: usize = 500;

/// Returns the resident memory in KiB, if the system reports it.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn generated_policy(number: usize) -> SourceFile {
    let text = format!(
        r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: policy-{number}
  annotations:
    description: Containers of team {number} come from its registry, say what they need and do not run as root.
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [pods]
  matchConditions:
    - name: of-team
      expression: "object.metadata.?labels['team'].orValue('') == 'team-{number}'"
  variables:
    - name: containers
      expression: object.spec.containers + object.spec.?initContainers.orValue([])
  validations:
    - expression: |
        variables.containers.all(c,
          has(c.resources) && has(c.resources.limits) &&
          'memory' in c.resources.limits &&
          quantity(c.resources.limits['memory']).isLessThan(quantity('{number}Gi')))
      messageExpression: |
        'containers without a limit of memory below {number}Gi: ' +
        variables.containers.filter(c, !has(c.resources)).map(c, c.name).join(', ')
    - expression: variables.containers.all(c, c.image.startsWith('registry.example.com/team-{number}/') && !c.image.endsWith(':latest'))
      message: images come from the team's registry, with a tag
      reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: policy-{number}
spec:
  policyName: policy-{number}
  validationActions: [Deny]
  matchResources:
    namespaceSelector:
      matchLabels:
        team: team-{number}
"#
    );
    SourceFile { name: format!("policy-{number:03}.yaml"), bytes: text.into_bytes() }
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let files: Vec<SourceFile> = if named.is_empty() {
        (1..=POLICIES).map(generated_policy).collect()
    } else {
        named
            .into_iter()
            .map(|name| {
                let bytes = fs::read(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
                SourceFile { name, bytes }
            })
            .collect()
    };
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    let before = resident();
    let mut sets = Vec::new();
    for round in 1..=5 {
        let begun = Instant::now();
        let loaded = load(&files);
        let took = begun.elapsed();
        assert!(loaded.set.is_some(), "{}", render_problems(&loaded.problems, &files));
        let grown = resident().zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        println!(
            "load {round}: {} policies, {} KiB of files: {took:.1?}, {} problems; memory since the start: {} KiB",
            loaded.counts.policies,
            bytes / 1024,
            loaded.problems.len(),
            grown
        );
        sets.push(loaded.set);
    }
}
