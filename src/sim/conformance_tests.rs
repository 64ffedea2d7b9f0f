//! Conformance tests of the dialects: each test plays one scenario on the simulated cluster for every
//! dialect.
//!
//! The table of dialects is `stack_fixtures.rs`. A new dialect gets a row there.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::fuzz::webhook;
use crate::scenario::{Runner, Scenario};
use crate::stack_fixtures::{StackFixture, stacks};
use portcullis_core::admission::AdmissionSettings;
use portcullis_core::dialect::{self, group_kinds, membership};
use portcullis_core::engine::Phase;
use portcullis_core::model::{DialectId, GangId};
use portcullis_core::objects::view::PodView;

/// Builds a scenario as text, so that a failing one can be saved as a file.
struct ScenarioBuilder<'f> {
    stack: &'f StackFixture,
    cpu: u32,
    steps: String,
}

impl<'f> ScenarioBuilder<'f> {
    /// A scenario on one node that has capacity for `members` members.
    fn on(stack: &'f StackFixture, members: u32) -> Self {
        Self { stack, cpu: members, steps: String::new() }
    }

    fn step(mut self, line: &str) -> Self {
        writeln!(self.steps, "- {line}").unwrap();
        self
    }

    fn expect(mut self, text: &str) -> Self {
        let gang = |name: &str| format!("default/{}", (self.stack.group)(name));
        let text = text.replace("$A", &gang("a")).replace("$B", &gang("b"));
        writeln!(self.steps, "  expect: {text}").unwrap();
        self
    }

    fn apply(self, objects: &[Value]) -> Self {
        let lines: Vec<String> = objects.iter().map(|object| format!("    {object}")).collect();
        self.step(&format!("apply: |\n{}", lines.join("\n    ---\n")))
    }

    /// Applies the members with these indexes.
    fn pods(self, gang: &str, indexes: std::ops::Range<u32>, size: u32) -> Self {
        let pods: Vec<Value> = indexes.map(|index| self.pod(gang, index, size)).collect();
        self.apply(&pods)
    }

    fn pod(&self, gang: &str, index: u32, size: u32) -> Value {
        let mut pod = (self.stack.pod)(gang, index, size);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(pod_name(self.stack, gang, index));
        pod["spec"]["containers"] = json!([{ "name": "main", "resources": { "requests": { "cpu": "1" } } }]);
        pod
    }

    /// Changes the size of a gang: in its group object, else in its `here` existing pods.
    fn size(self, gang: &str, here: u32, size: u32) -> Self {
        match self.stack.object {
            Some(object) => {
                let object = object(gang, size);
                self.apply(&[object])
            }
            None => self.pods(gang, 0..here, size),
        }
    }

    fn play(self) {
        let mut text = format!("name: {:?}\ncluster:\n  nodes:\n", self.stack.name);
        writeln!(text, "  - {{name: node-1, cpu: \"{}\", memory: 64Gi}}", self.cpu).unwrap();
        writeln!(text, "steps:\n{}", self.steps).unwrap();
        let scenario = Scenario::parse("conformance.yaml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let admit = webhook(AdmissionSettings::default());
        let mut runner = Runner::new(scenario, Some(admit)).unwrap_or_else(|e| panic!("{e}\n{text}"));
        while let Some(step) = runner.next_step().unwrap_or_else(|e| panic!("{e}\n{text}")) {
            let events: Vec<_> = step.events.iter().map(|event| &event.note.message).collect();
            assert!(
                step.is_as_expected(),
                "{}, step {}: {:#?}\n{events:#?}\n{text}",
                self.stack.name,
                step.number,
                step.failures()
            );
        }
    }
}

fn pod_name(stack: &StackFixture, gang: &str, index: u32) -> String {
    let named = (stack.pod)(gang, index, 3);
    named["metadata"]["name"].as_str().map_or_else(|| format!("{gang}-p{index}"), str::to_owned)
}

/// Names of members, as a list in YAML.
fn list(stack: &StackFixture, gang: &str, indexes: std::ops::Range<u32>) -> String {
    let names: Vec<String> = indexes.map(|index| pod_name(stack, gang, index)).collect();
    format!("[{}]", names.join(", "))
}

fn each(scenario: impl Fn(&StackFixture)) {
    for stack in stacks() {
        scenario(&stack);
    }
}

fn each_with_object(scenario: impl Fn(&StackFixture)) {
    each(|stack| {
        if stack.object.is_some() {
            scenario(stack);
        }
    });
}

fn each_that_declares(scenario: impl Fn(&StackFixture)) {
    each(|stack| {
        if stack.declares {
            scenario(stack);
        }
    });
}

#[test]
fn every_dialect_and_every_kind_of_group_has_a_stack() {
    let stacks = stacks();
    for id in DialectId::ALL {
        assert!(stacks.iter().any(|stack| stack.dialect == *id), "{id}");
    }
    for kind in group_kinds() {
        let api_version = json!(kind.resource().api_version());
        let covers =
            |f: &StackFixture| f.object.is_some_and(|object| object("a", 3)["apiVersion"] == api_version);
        assert!(stacks.iter().any(covers), "{api_version}");
    }
}

#[test]
fn members_are_linked_gated_and_started_together() {
    each(|f| {
        let all = list(f, "a", 0..3);
        let mut story = ScenarioBuilder::on(f, 8);
        if let Some(object) = f.object {
            story = story.apply(&[object("a", 3)]);
        }
        let here = list(f, "a", 0..2);
        story
            .pods("a", 0..2, 3)
            .expect(&format!(
                "{{gated: {here}, gangs: {{$A: {{phase: Gathering, members: 2, message: \"2 of 3\"}}}}}}"
            ))
            .pods("a", 2..3, 3)
            .expect(&format!("{{running: {all}, gangs: {{$A: {{phase: Admitted, members: 3}}}}}}"))
            .play();
    });
}

#[test]
fn members_wait_for_a_missing_group_and_the_status_reports_it() {
    each_with_object(|f| {
        if f.declares {
            return;
        }
        let all = list(f, "a", 0..3);
        ScenarioBuilder::on(f, 8)
            .pods("a", 0..3, 3)
            .expect(&format!(
                "{{gated: {all}, gangs: {{$A: {{phase: Gathering, reason: GroupNotFound, message: \"3 pods name the group\"}}}}}}"
            ))
            .size("a", 3, 3)
            .expect(&format!("{{running: {all}}}"))
            .play();
    });
}

#[test]
fn a_recreated_group_is_a_new_gang() {
    each_with_object(|f| {
        let two = list(f, "a", 0..2);
        let without = if f.declares { "Gathering" } else { "GroupNotFound" };
        ScenarioBuilder::on(f, 8)
            .size("a", 0, 4)
            .pods("a", 0..2, 4)
            .expect(&format!("{{gated: {two}, gangs: {{$A: {{reason: Gathering}}}}}}"))
            .step(&format!("delete: {}", f.target("default", "a").unwrap()))
            .expect(&format!("{{gated: {two}, gangs: {{$A: {{reason: {without}}}}}}}"))
            .size("a", 2, 2)
            .expect(&format!("{{running: {two}, gangs: {{$A: {{phase: Admitted}}}}}}"))
            .step(&format!("delete: {}", f.target("default", "a").unwrap()))
            .expect(&format!("{{running: {two}}}"))
            .play();
    });
}

#[test]
fn the_same_name_in_two_namespaces_is_two_gangs() {
    each(|f| {
        let elsewhere = |mut object: Value| {
            object["metadata"]["namespace"] = json!("other");
            object
        };
        let mut story = ScenarioBuilder::on(f, 8);
        if let Some(object) = f.object {
            story = story.apply(&[object("a", 3), elsewhere(object("a", 3))]);
        }
        let two: Vec<Value> = (0..2).map(|index| elsewhere(story.pod("a", index, 3))).collect();
        let there = |indexes: std::ops::Range<u32>| {
            let names: Vec<String> =
                indexes.map(|index| format!("other/{}", pod_name(f, "a", index))).collect();
            format!("[{}]", names.join(", "))
        };
        let last = elsewhere(story.pod("a", 2, 3));
        let (here, all) = (list(f, "a", 0..2), list(f, "a", 0..3));
        story
            .pods("a", 0..2, 3)
            .apply(&two)
            .expect(&format!("{{gated: {}}}", here.replace(']', &format!(", {}", &there(0..2)[1..]))))
            .apply(&[last])
            .expect(&format!("{{running: {}, gated: {here}}}", there(0..3)))
            .pods("a", 2..3, 3)
            .expect(&format!("{{running: {all}}}"))
            .play();
    });
}

#[test]
fn the_size_can_change_while_members_gather() {
    each(|f| {
        let (two, all) = (list(f, "a", 0..2), list(f, "a", 0..4));
        // Lowered: the existing members are enough.
        let begun = |size| {
            let story = ScenarioBuilder::on(f, 8);
            let story = if f.object.is_some() { story.size("a", 0, size) } else { story };
            story.pods("a", 0..2, size)
        };
        begun(3)
            .expect(&format!("{{gated: {two}}}"))
            .size("a", 2, 2)
            .expect(&format!("{{running: {two}}}"))
            .play();
        // Raised: a third member does not complete the gang any more.
        let three = list(f, "a", 0..3);
        begun(3)
            .size("a", 2, 4)
            .pods("a", 2..3, 4)
            .expect(&format!("{{gated: {three}, gangs: {{$A: {{phase: Gathering}}}}}}"))
            .pods("a", 3..4, 4)
            .expect(&format!("{{running: {all}}}"))
            .play();
    });
}

#[test]
fn the_size_can_change_while_a_gang_waits_and_while_it_runs() {
    each(|f| {
        let (two, three) = (list(f, "a", 0..2), list(f, "a", 0..3));
        let begun = |capacity| {
            let story = ScenarioBuilder::on(f, capacity);
            let story = if f.object.is_some() { story.size("a", 0, 3) } else { story };
            story.pods("a", 0..3, 3)
        };
        // Raised while the gang waits for capacity: it gathers again. Lowered: as many members as fit start.
        begun(2)
            .expect(&format!("{{gated: {three}, gangs: {{$A: {{phase: Waiting}}}}}}"))
            .size("a", 3, 4)
            .expect(&format!("{{gated: {three}, gangs: {{$A: {{phase: Gathering}}}}}}"))
            .size("a", 3, 2)
            .expect(&format!("{{running: {two}, gated: [{}]}}", pod_name(f, "a", 2)))
            .play();
        // A running gang is not affected, and a further member starts alone.
        begun(8)
            .expect(&format!("{{running: {three}}}"))
            .size("a", 3, 5)
            .expect(&format!("{{running: {three}}}"))
            .size("a", 3, 2)
            .expect(&format!("{{running: {three}, gangs: {{$A: {{phase: Admitted}}}}}}"))
            .pods("a", 3..4, 2)
            .expect(&format!("{{running: {}}}", list(f, "a", 0..4)))
            .play();
    });
}

#[test]
fn priority_orders_the_queue() {
    each(|f| {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "high" }, "value": 1000
        });
        let stranger = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "stranger" },
            "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "3" } } }] },
        });
        let mut story = ScenarioBuilder::on(f, 3).apply(&[class, stranger]).expect("{running: [stranger]}");
        if f.object.is_some() {
            story = story.size("a", 0, 3).size("b", 0, 3);
        }
        let urgent: Vec<Value> = (0..3)
            .map(|index| {
                let mut pod = story.pod("b", index, 3);
                pod["spec"]["priorityClassName"] = json!("high");
                pod
            })
            .collect();
        let (first, second) = (list(f, "a", 0..3), list(f, "b", 0..3));
        story
            .pods("a", 0..3, 3)
            .apply(&urgent)
            .expect("{gangs: {$A: {phase: Waiting}, $B: {phase: Waiting}}}")
            .step("delete: pod/stranger\n  advance: 5s")
            .expect(&format!("{{running: {second}, gated: {first}}}"))
            .play();
    });
}

#[test]
fn members_that_disagree_wait_and_the_status_reports_it() {
    each_that_declares(|f| {
        if f.object.is_some() || f.dialect == DialectId::Yunikorn {
            return;
        }
        let three = list(f, "a", 0..3);
        ScenarioBuilder::on(f, 8)
            .pods("a", 0..2, 3)
            .pods("a", 2..3, 2)
            .expect(&format!(
                "{{gated: {three}, gangs: {{$A: {{phase: Gathering, reason: MembersDisagree, message: [\"declares 3 members\", \"declares 2\"]}}}}}}"
            ))
            .pods("a", 2..3, 3)
            .expect(&format!("{{running: {three}}}"))
            .play();
    });
}

#[test]
fn the_group_object_has_precedence_over_declarations_of_pods() {
    let old = stacks().into_iter().find(|f| f.name == "coscheduling of old guides").unwrap();
    let two = list(&old, "a", 0..2);
    ScenarioBuilder::on(&old, 8)
        .size("a", 0, 2)
        .pods("a", 0..2, 4)
        .expect(&format!(
            "{{running: {two}, events: [\"PodGroup a wants 2 members, its pods say 4 (pod-group.scheduling.sigs.k8s.io/min-available): the PodGroup counts\"]}}"
        ))
        .play();
}

#[test]
fn a_pod_that_names_groups_in_two_dialects_is_rejected() {
    let stacks = stacks();
    for (index, f) in stacks.iter().enumerate() {
        for other in &stacks[index + 1..] {
            let implied = |f: &StackFixture| f.name.starts_with("lws");
            if f.dialect == other.dialect || implied(f) || implied(other) {
                continue;
            }
            let story = ScenarioBuilder::on(f, 8);
            let mut pod = story.pod("a", 0, 3);
            let more = (other.pod)("b", 0, 3);
            json_patch::merge(&mut pod, &more);
            let fields = [f, other].map(|f| dialect::field(f.dialect));
            let name = pod_name(f, "a", 0);
            let message = format!(
                "[\"the pod names two groups\", \"{}\", \"{}\", \"{}\", \"{}\"]",
                (f.group)("a"),
                (other.group)("b"),
                fields[0],
                fields[1]
            );
            story.apply(&[pod]).expect(&format!("{{rejected: {{{name}: {{message: {message}}}}}}}")).play();
        }
    }
}

#[test]
fn a_group_that_another_stack_adds_later_changes_nothing() {
    each(|f| {
        if matches!(f.dialect, DialectId::Kai | DialectId::Volcano) {
            return;
        }
        let uid = "2f9a3d52-62b5-4a3a-8f2e-1d0c7a9b1234";
        let three = list(f, "a", 0..3);
        let story = ScenarioBuilder::on(f, 8);
        let story = if f.object.is_some() { story.size("a", 0, 3) } else { story };
        let added: Vec<Value> = (0..2)
            .map(|index| {
                let mut pod = story.pod("a", index, 3);
                pod["metadata"]["annotations"]["pod-group-name"] = json!(format!("pg-a-{uid}"));
                pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] =
                    json!(format!("podgroup-{uid}"));
                pod
            })
            .collect();
        story
            .pods("a", 0..2, 3)
            .apply(&added)
            .expect("{gangs: {$A: {phase: Gathering, members: 2}}}")
            .pods("a", 2..3, 3)
            .expect(&format!("{{running: {three}, gangs: {{$A: {{phase: Admitted, members: 3}}}}}}"))
            .play();
    });
}

#[test]
fn every_dialect_can_set_a_timeout() {
    let own = |f: &StackFixture| -> Option<(Value, u64)> {
        let mut object = f.object?("a", 3);
        match f.dialect {
            DialectId::Coscheduling => object["spec"]["scheduleTimeoutSeconds"] = json!(90),
            DialectId::Volcano => {
                object["metadata"]["annotations"] = json!({ "volcano.sh/sla-waiting-time": "1m30s" });
            }
            DialectId::Native => {
                let mut applied = object.clone();
                for gang in ["/spec/podGroups/0/policy/gang", "/spec/schedulingPolicy/gang"] {
                    if let Some(gang) = applied.pointer_mut(gang) {
                        gang["timeout"] = json!(90);
                    }
                }
                let key = "kubectl.kubernetes.io/last-applied-configuration";
                object["metadata"]["annotations"] = json!({ key: applied.to_string() });
            }
            _ => return None,
        }
        Some((object, 90))
    };
    each_with_object(|f| {
        let read = |object: &Value| {
            let api_version = object["apiVersion"].as_str().unwrap();
            let kind = group_kinds().find(|kind| kind.resource().api_version() == api_version).unwrap();
            kind.read(&object.to_string()).unwrap().groups[0].timeout.map(|timeout| timeout.as_secs())
        };
        let mut object = f.object.unwrap()("a", 3);
        assert_eq!(read(&object), None, "{}", f.name);
        object["metadata"]["annotations"] = json!({ "portcullis.dev/timeout": "2m" });
        assert_eq!(read(&object), Some(120), "{}", f.name);
        if let Some((mut object, seconds)) = own(f) {
            assert_eq!(read(&object), Some(seconds), "{}", f.name);
            object["metadata"]["annotations"]["portcullis.dev/timeout"] = json!("2m");
            assert_eq!(read(&object), Some(120), "{}: our own annotation counts for more", f.name);
        }
    });
    each(|f| {
        let mut pod = ScenarioBuilder::on(f, 1).pod("a", 0, 3);
        pod["metadata"]["annotations"]["portcullis.dev/timeout"] = json!("120");
        let text = pod.to_string();
        let view: PodView<'_> = serde_json::from_str(&text).unwrap();
        let declared = membership(&view).unwrap().declared.unwrap();
        assert_eq!(declared.timeout.map(|timeout| timeout.as_secs()), Some(120), "{}", f.name);
    });
}

#[test]
fn gangs_of_different_dialects_can_have_one_name() {
    let stacks = stacks();
    let kinds = [DialectId::Kai, DialectId::Coscheduling, DialectId::Volcano, DialectId::Plain];
    let picked: Vec<&StackFixture> =
        kinds.iter().map(|id| stacks.iter().find(|f| f.dialect == *id).unwrap()).collect();
    let mut text =
        "name: side by side\ncluster:\n  nodes: [{name: node-1, cpu: \"8\", memory: 64Gi}]\nsteps:\n"
            .to_owned();
    let mut objects = Vec::new();
    for f in &picked {
        objects.extend(f.object.map(|object| object("app", 2)));
        for index in 0..2 {
            let mut pod = ScenarioBuilder::on(f, 8).pod("app", index, 2);
            pod["metadata"]["name"] = json!(format!("{}-{index}", f.dialect));
            objects.push(pod);
        }
    }
    let lines: Vec<String> = objects.iter().map(|object| format!("    {object}")).collect();
    writeln!(text, "- apply: |\n{}", lines.join("\n    ---\n")).unwrap();
    let scenario = Scenario::parse("side-by-side.yaml", &text).unwrap();
    let mut runner = Runner::new(scenario, Some(webhook(AdmissionSettings::default()))).unwrap();
    let step = runner.next_step().unwrap().unwrap();
    assert!(step.is_as_expected(), "{:#?}", step.failures());
    let admitted = step.gangs.iter().filter(|gang| gang.status.phase == Phase::Admitted).count();
    assert_eq!((step.gangs.len(), admitted), (4, 4), "{:#?}", step.gangs);
    let names: Vec<_> = kinds.iter().map(|id| GangId::new(*id, "default", "app").object_name()).collect();
    assert_eq!(
        names.iter().map(|n| &**n).collect::<Vec<_>>(),
        ["app", "app.coscheduling", "app.volcano", "app.plain"]
    );
}
