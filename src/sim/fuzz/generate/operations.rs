//! Operations of a generated scenario: objects are created, changed and deleted, and faults happen.

use std::time::Duration;

use serde_json::{Value, json};

use super::{GeneratedGang, ScenarioGenerator, pick, spanned, target};
use crate::scenario::{FaultSpec, OneOrMany, Step, TimeSpan};
use portcullis_core::model::random::Random;

impl ScenarioGenerator {
    pub(super) fn operation(&mut self) -> Step {
        let node = self.nodes[pick(&mut self.random, self.nodes.len() as u64)].clone();
        let gang = self.gangs[pick(&mut self.random, self.gangs.len() as u64)].clone();
        let pods: &[String] =
            if self.pods.is_empty() { &["pod/default/none".to_owned()] } else { &self.pods };
        let pod = pods[pick(&mut self.random, pods.len() as u64)].clone();
        let one = |target: String| Some(OneOrMany::One(target));
        let group = self.stacks[gang.stack].target(gang.namespace, &gang.name);
        let group = group.filter(|_| gang.group.is_some());
        let bare = pod.trim_start_matches("pod/").to_owned();
        let mut step = Step::default();
        match self.random.below(33) {
            0..=2 => step.delete = one(pod),
            3 => step.delete = group.map(OneOrMany::One),
            4 => {
                let pods = gang.pods.iter().map(target);
                step.delete = Some(OneOrMany::Many(pods.chain(group).collect()));
            }
            5..=7 => {
                step.objects = gang.group.iter().chain(&gang.pods).cloned().collect();
            }
            8 => step.cordon = one(node),
            9 => step.uncordon = one(node),
            10 => {
                let sign = if self.random.percent(50) { "-" } else { "" };
                step.taint.insert(node, format!("test=blocked:NoSchedule{sign}"));
            }
            11 => step.finish = one(bare),
            12 => {
                step.ungate.insert(bare, "example.com/other".to_owned());
            }
            13 => step.objects = vec![self.pod_without_gang()],
            14 => step.objects = vec![self.deployment()],
            15 => {
                step.scale.insert("web".to_owned(), self.random.below(4));
            }
            28..=30 if !self.owners.is_empty() => {
                let owner = self.owners[pick(&mut self.random, self.owners.len() as u64)].clone();
                step.scale.insert(owner, self.random.below(6));
            }
            31 => step.objects = self.rolled(&gang),
            32 if !self.owners.is_empty() => {
                step.delete = one(self.owners[pick(&mut self.random, self.owners.len() as u64)].clone());
            }
            16 => step.objects = vec![self.pod(&gang, 7, 8)],
            26 => step.fail = one(bare),
            27 => step.crash = one(bare),
            24..=25 => step.objects = self.resized(gang),
            17 if self.random.percent(40) => {
                // An invalid pod, as a bug or an older release may have stored it.
                let (namespace, name) = (gang.namespace, &gang.name);
                step.inject_objects = vec![json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "garbage", "namespace": namespace, "annotations": {"pod-group-name": name}},
                    "spec": {"schedulingGates": [{"name": "portcullis.dev/gang"}], "containers": [
                        {"name": "main", "resources": {"requests": {"cpu": "banana"}}}
                    ]},
                    "status": {"phase": "Pending"},
                })];
            }
            18 if self.random.percent(30) => step.delete = one(format!("node/{node}")),
            18 => {
                step.objects =
                    self.specs.iter().filter(|s| s.name == node).filter_map(|s| s.object().ok()).collect();
            }
            _ => step.fault = self.fault(&node).map(spanned),
        }
        step
    }

    /// Changes the number of members, in the group object or in the declarations of the pods.
    fn resized(&mut self, mut gang: GeneratedGang) -> Vec<Value> {
        gang.size = u32::try_from(self.random.between(1, 6)).unwrap_or(1);
        if gang.group.is_some() {
            return self.group(&gang, gang.size).into_iter().collect();
        }
        let declare = |(index, pod): (u32, &Value)| {
            let declared = (self.stacks[gang.stack].pod)(&gang.name, index, gang.size);
            let mut pod = pod.clone();
            for map in ["labels", "annotations"] {
                for (key, value) in declared["metadata"][map].as_object().into_iter().flatten() {
                    pod["metadata"][map][key] = value.clone();
                }
            }
            pod
        };
        (0..).zip(&gang.pods).map(declare).collect()
    }

    fn fault(&mut self, node: &str) -> Option<FaultSpec> {
        let sort = *self.random.pick(&self.fault_kinds.0)?;
        let span = |random: &mut Random| TimeSpan(Duration::from_millis(random.between(5, 40_000)));
        let random = &mut self.random;
        let mut fault = FaultSpec::default();
        match sort {
            0 => fault.kill_leader = Some(span(random)),
            1 => fault.pause_leader = Some(span(random)),
            2 => fault.kill = Some(pick(random, 3)),
            3 => fault.pause = Some(pick(random, 3)),
            4 => fault.node_lost = Some(node.to_owned()),
            5 => fault.node_back = Some(node.to_owned()),
            6 => fault.jump_clock = Some(span(random)),
            7 => fault.restart_scheduler = true,
            _ => {
                let kinds: Vec<&str> =
                    self.stacks.iter().map(|stack| stack.kind).filter(|k| !k.is_empty()).collect();
                let group = kinds[pick(random, kinds.len() as u64)];
                fault.break_watches = Some(["pod", "node", "gang", group][pick(random, 4)].to_owned());
            }
        }
        fault.lasts = Some(span(random));
        if sort < 2 && random.percent(60) {
            use crate::cluster::FaultTrigger;
            let moments = [
                FaultTrigger::Plan,
                FaultTrigger::Nominate,
                FaultTrigger::Verify,
                FaultTrigger::Lift,
                FaultTrigger::Lift,
                FaultTrigger::Fence,
            ];
            fault.after = Some(moments[pick(random, 6)]);
            fault.count = Some(u32::try_from(random.between(1, 4)).unwrap_or(1));
        }
        Some(fault)
    }

    /// A pod without a gang, which uses capacity.
    fn pod_without_gang(&mut self) -> Value {
        let random = &mut self.random;
        let mut requests = json!({"cpu": random.between(1, 4).to_string()});
        if random.percent(30) {
            requests["nvidia.com/gpu"] = json!("1");
        }
        let limits = json!({"nvidia.com/gpu": requests.get("nvidia.com/gpu").cloned().unwrap_or(json!("0"))});
        let resources = json!({"requests": requests, "limits": limits});
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("stranger-{}", random.below(4))},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
        })
    }

    fn deployment(&mut self) -> Value {
        let gang = &self.gangs[0];
        let mut made = (self.stacks[gang.stack].pod)(&gang.name, 6, gang.size);
        let (mut metadata, mut spec) = (made["metadata"].take(), made["spec"].take());
        if self.random.percent(50) {
            metadata["labels"]["app"] = json!("web");
            metadata["annotations"]["gpu-memory"] = json!("3000");
            metadata.as_object_mut().map(|metadata| metadata.remove("name"));
        } else {
            (metadata, spec) = (json!({"labels": {"app": "web"}}), json!({}));
        }
        spec["containers"] = json!([{"name": "main", "resources": {"requests": {"cpu": "1"}}}]);
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": self.random.between(1, 3), "template": {"metadata": metadata, "spec": spec}},
        })
    }
}
