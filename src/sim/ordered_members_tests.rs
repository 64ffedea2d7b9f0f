//! Gangs whose members are created one after the other. The leader is killed or paused at every step of the
//! protocol.

use super::fuzz::webhook;
use super::scenario::{Runner, Scenario};
use portcullis_core::admission;

// `other` is created one second after `worker-0`. Gangs queue by the creation of their pods,
// `creationTimestamp` counts whole seconds, and equal seconds are ordered by name: `other` before
// `training`. A new leader drops a plan without a lifted member, and plans again in that order.
const SET: &str = r"
cluster:
  nodes:
  - {name: node-1, cpu: '2', memory: 8Gi}
  - {name: node-2, cpu: '2', memory: 8Gi}
steps:
- apply: |
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: worker}
    spec:
      replicas: 3
      template:
        metadata:
          annotations: {portcullis.dev/ordered: keep, portcullis.dev/gang: training, portcullis.dev/gang-size: '3'}
        spec:
          containers:
          - name: main
            image: app:1
            resources: {requests: {cpu: '1'}}
  FAULT
  settle: false
  advance: 1s
- say: Another gang is created. It would fit beside the running pods.
  apply: |
    apiVersion: v1
    kind: Pod
    metadata: {name: other-a, annotations: {portcullis.dev/gang: other, portcullis.dev/gang-size: '2'}}
    spec: {containers: [{name: main, image: app:1, resources: {requests: {cpu: '1'}}}]}
    ---
    apiVersion: v1
    kind: Pod
    metadata: {name: other-b, annotations: {portcullis.dev/gang: other, portcullis.dev/gang-size: '2'}}
    spec: {containers: [{name: main, image: app:1, resources: {requests: {cpu: '1'}}}]}
  expect:
    running: [worker-0, worker-1, worker-2]
    gated: [other-a, other-b]
    gangs: {training: {phase: Admitted, members: 3, bound: 3}, other: {phase: Waiting}}
- delete: statefulset/worker
  expect: {running: [other-a, other-b]}
";

fn play(text: &str) -> bool {
    let scenario = Scenario::parse("inline.yaml", text).unwrap_or_else(|e| panic!("{e}"));
    let admit = webhook(admission::AdmissionSettings::default());
    let mut runner = Runner::new(scenario, Some(admit)).unwrap_or_else(|e| panic!("{e}"));
    while let Some(step) = runner.next_step().unwrap_or_else(|e| panic!("{e}")) {
        let skipped =
            step.failures().iter().any(|failure| format!("{failure:?}").contains("it did not happen"));
        if skipped {
            return false;
        }
        let gangs: Vec<String> = step
            .gangs
            .iter()
            .map(|g| format!("{}: {:?} {}", g.name, g.status.phase, g.status.message))
            .collect();
        assert!(
            step.is_as_expected(),
            "{text}\nstep {}: {:#?}\n{gangs:#?}\n{:#?}",
            step.number,
            step.failures(),
            step.events
        );
    }
    true
}

#[test]
fn every_new_leader_keeps_the_reservations_of_placeholders() {
    play(&format!("name: no-fault\n{}", SET.replace("FAULT", "say: No fault.")));
    let mut played = 0;
    for fault in ["killLeader: 1s", "pauseLeader: 20s"] {
        for trigger in ["plan", "nominate", "verify", "lift"] {
            for count in 1..=4 {
                let step = format!("fault: {{after: {trigger}, count: {count}, {fault}}}");
                played += usize::from(play(&format!("name: fault\n{}", SET.replace("FAULT", &step))));
            }
        }
    }
    assert!(played >= 16, "only {played} faults happened");
}
