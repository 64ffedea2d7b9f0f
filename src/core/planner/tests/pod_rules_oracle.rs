//! Random small clusters with rules about other pods, compared with a search over every assignment and every
//! order of binding.

use super::pod_rules::{ZONE, gang_of, pod, run, spread, term};
use super::*;
use crate::model::Reason;
use crate::planner::{PlanningOutcome, check, is_unschedulable, plan};

const RACK: &str = "rack";

/// A pod of the oracle: labels, shape, node.
#[derive(Clone)]
struct Placed {
    labels: PodLabels,
    shape: Arc<Shape>,
    node: usize,
}

struct Oracle {
    nodes: Vec<Node>,
    running: Vec<Placed>,
}

impl Oracle {
    fn label(&self, node: usize, key: &str) -> Option<&str> {
        self.nodes[node].labels.get(key).map(|value| &**value)
    }

    fn same_domain(&self, a: usize, b: usize, key: &str) -> bool {
        self.label(a, key).is_some() && self.label(a, key) == self.label(b, key)
    }

    /// Whether the scheduler takes a pod on its node beside the others.
    fn takes(&self, pod: &Placed, others: &[Placed]) -> bool {
        let on_node: Vec<&Placed> = others.iter().filter(|other| other.node == pod.node).collect();
        let cpu: u64 = on_node.iter().map(|other| other.shape.requests.cpu.0).sum();
        let node = &self.nodes[pod.node];
        if on_node.len() as u64 >= node.max_pods || cpu + pod.shape.requests.cpu.0 > node.allocatable.cpu.0 {
            return false;
        }
        let rules = |pod: &Placed| pod.shape.pod_rules.clone().unwrap_or_default();
        let mine = rules(pod);
        let keeps_apart = |one: &Placed, other: &Placed| {
            rules(one).anti_affinity.iter().any(|term| {
                term.matches(&other.labels, |_| None)
                    && self.same_domain(one.node, other.node, &term.topology_key)
            })
        };
        if others.iter().any(|other| keeps_apart(pod, other) || keeps_apart(other, pod)) {
            return false;
        }
        let all = |labels: &PodLabels| mine.affinity.iter().all(|term| term.matches(labels, |_| None));
        let has_keys = mine.affinity.iter().all(|term| self.label(pod.node, &term.topology_key).is_some());
        let met = mine.affinity.iter().all(|term| {
            others.iter().any(|o| all(&o.labels) && self.same_domain(o.node, pod.node, &term.topology_key))
        });
        let none = !others.iter().any(|other| {
            let has_key = |t: &Arc<crate::shape::PodTerm>| self.label(other.node, &t.topology_key).is_some();
            all(&other.labels) && mine.affinity.iter().any(has_key)
        });
        if !mine.affinity.is_empty() && !(has_keys && (met || (none && all(&pod.labels)))) {
            return false;
        }
        mine.spread.iter().all(|constraint| {
            let Some(here) = self.label(pod.node, &constraint.topology_key) else { return false };
            let counted = |index: usize| {
                let node = &self.nodes[index];
                mine.spread.iter().all(|other| self.label(index, &other.topology_key).is_some())
                    && (!constraint.honors_node_affinity
                        || pod.shape.node_affinity.matches(&node.name, &node.labels))
                    && (!constraint.honors_node_taints || node.taints.is_empty())
            };
            let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
            for index in (0..self.nodes.len()).filter(|index| counted(*index)) {
                let domain = self.label(index, &constraint.topology_key).expect("counted nodes have it");
                let pods = others.iter().filter(|o| o.node == index && constraint.matches(&o.labels));
                *domains.entry(domain).or_default() += u32::try_from(pods.count()).expect("few");
            }
            let few = domains.len() < constraint.min_domains as usize;
            let least = if few { 0 } else { domains.values().copied().min().unwrap_or(0) };
            let own = u32::from(constraint.matches(&pod.labels));
            domains.get(here).copied().unwrap_or(0) + own <= constraint.max_skew + least
        })
    }

    fn beside(&self, placed: &[Placed], without: usize) -> Vec<Placed> {
        let others = placed.iter().enumerate().filter(|(index, _)| *index != without);
        self.running.iter().chain(others.map(|(_, other)| other)).cloned().collect()
    }

    /// Whether all members can be bound one after the other.
    fn can_bind(&self, bound: &mut Vec<Placed>, waiting: &mut Vec<Placed>) -> bool {
        if waiting.is_empty() {
            return true;
        }
        for index in 0..waiting.len() {
            if self.takes(&waiting[index], bound) {
                let next = waiting.remove(index);
                bound.push(next);
                let all = self.can_bind(bound, waiting);
                let next = bound.pop().expect("just pushed");
                waiting.insert(index, next);
                if all {
                    return true;
                }
            }
        }
        false
    }

    /// Whether a member that the scheduler takes as the first of its group is taken as a later one too.
    fn is_in_the_domain_of_its_group(&self, placed: &[Placed], index: usize) -> bool {
        let (pod, others) = (&placed[index], self.beside(placed, index));
        let rules = pod.shape.pod_rules.clone().unwrap_or_default();
        let group = |other: &&Placed| rules.affinity.iter().all(|t| t.matches(&other.labels, |_| None));
        let known = self.running.iter().filter(group).any(|other| {
            rules.affinity.iter().any(|term| self.label(other.node, &term.topology_key).is_some())
        });
        let near = |other: &Placed, key: &str| {
            self.label(other.node, key).is_none() || self.same_domain(other.node, pod.node, key)
        };
        let all_near = others
            .iter()
            .filter(group)
            .all(|other| rules.affinity.iter().all(|term| near(other, &term.topology_key)));
        let sure = self.can_bind_without_being_first(placed, index);
        known || all_near || sure
    }

    /// Whether all can bind where this one is never the first of its group.
    fn can_bind_without_being_first(&self, placed: &[Placed], index: usize) -> bool {
        let mut others = placed.to_vec();
        let pod = others.remove(index);
        let mut bound = self.running.clone();
        // Everything that binds without the pod binds before it.
        while let Some(next) = (0..others.len()).find(|next| self.takes(&others[*next], &bound)) {
            bound.push(others.remove(next));
        }
        self.takes(&pod, &bound)
    }

    fn is_valid(&self, placed: &[Placed]) -> bool {
        (0..placed.len()).all(|index| self.is_in_the_domain_of_its_group(placed, index))
            && (0..placed.len()).all(|index| self.takes(&placed[index], &self.beside(placed, index)))
            && self.can_bind(&mut self.running.clone(), &mut placed.to_vec())
    }

    /// The most members of the gang that can run together.
    fn most(&self, request: &PlanningRequest, placed: &mut Vec<Placed>, from: usize, best: &mut usize) {
        let Some(member) = request.members.get(from) else {
            if placed.len() > *best && self.is_valid(placed) {
                *best = placed.len();
            }
            return;
        };
        if placed.len() + request.members.len() - from <= *best {
            return;
        }
        let affinity = &member.shape.node_affinity;
        for (index, node) in self.nodes.iter().enumerate() {
            if affinity.matches(&node.name, &node.labels) && node.taints.is_empty() {
                placed.push(Placed {
                    labels: member.labels.clone(),
                    shape: member.shape.clone(),
                    node: index,
                });
                self.most(request, placed, from + 1, best);
                placed.pop();
            }
        }
        self.most(request, placed, from + 1, best);
    }
}

fn random_node(random: &mut Random, index: u64) -> Node {
    let mut made = node(&format!("n{index}"));
    made.max_pods = 1 + random.below(3);
    made.allocatable.cpu = MilliCpu(1000 * (1 + random.below(3)));
    if !random.one_in(8) {
        made.labels.insert(str(ZONE), str(pick(random, &["a", "b", "c"])));
    }
    if !random.one_in(8) {
        made.labels.insert(str(RACK), str(pick(random, &["r1", "r2"])));
    }
    if random.one_in(10) {
        made.taints.push(taint("test", "", TaintEffect::NoSchedule));
    }
    made
}

fn random_pod(random: &mut Random) -> (PodLabels, Shape) {
    let mut spec = String::new();
    let key = |random: &mut Random| pick(random, &[ZONE, ZONE, RACK, names::HOSTNAME_LABEL]);
    let app = |random: &mut Random| pick(random, &["a", "b"]);
    let mut parts = Vec::new();
    for kind in ["podAffinity", "podAntiAffinity"] {
        if random.one_in(3) {
            let terms: Vec<String> =
                (0..1 + random.below(2)).map(|_| term(app(random), key(random))).collect();
            let terms = terms.join(",");
            parts.push(format!(r#""{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{terms}]}}"#));
        }
    }
    if !parts.is_empty() {
        spec.push_str(&format!(r#","affinity":{{{}}}"#, parts.join(",")));
    }
    if random.one_in(3) {
        let more = pick(
            random,
            &[
                "",
                "",
                r#","minDomains":2"#,
                r#","minDomains":3"#,
                r#","nodeAffinityPolicy":"Ignore""#,
                r#","nodeTaintsPolicy":"Honor""#,
            ],
        );
        spec.push_str(&spread(app(random), key(random), more));
    }
    if random.one_in(8) {
        spec.push_str(&format!(r#","nodeSelector":{{"{ZONE}":"a"}}"#));
    }
    pod(app(random), &spec)
}

fn random_case(random: &mut Random) -> (Snapshot, Oracle, PlanningRequest) {
    let nodes: Vec<Node> = (0..1 + random.below(4)).map(|index| random_node(random, index)).collect();
    let mut snapshot = cluster(nodes.clone());
    let mut running = Vec::new();
    for index in 0..random.below(3) {
        let (labels, shape) = random_pod(random);
        let node = usize::try_from(random.below(nodes.len() as u64)).expect("small");
        run(&mut snapshot, &format!("r{index}"), nodes[node].name.as_str(), (labels.clone(), shape.clone()));
        running.push(Placed { labels, shape: Arc::new(shape), node });
    }
    let kinds: Vec<_> = (0..1 + random.below(3)).map(|_| random_pod(random)).collect();
    let members = (0..1 + random.below(4)).map(|_| pick(random, &kinds)).collect();
    let mut request = gang_of("g", members);
    if random.one_in(3) {
        request.quorum = Quorum::Count(1);
    }
    (snapshot, Oracle { nodes, running }, request)
}

#[test]
fn plans_obey_the_rules_about_other_pods_and_unplanned_gangs_do_not_fit() {
    let (mut placed, mut refused, mut unsure) = (0, 0, 0);
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let (snapshot, oracle, request) = random_case(&mut random);
        let gangs = [request];
        let (made, report) = plan(&snapshot, &gangs);
        let request = &gangs[0];
        assert_eq!(check(&snapshot, &gangs, &made), Ok(()), "seed {seed}");
        let got = made.gangs.first().map_or(0, |gang| gang.assignments.len());
        let exhausted = match &report.outcomes[&request.gang] {
            PlanningOutcome::Placed { unplaced, .. } => {
                unplaced.as_ref().is_some_and(|why| why.reason == Reason::SearchExhausted)
            }
            PlanningOutcome::Waiting(why) => {
                assert!(!why.message.is_empty(), "seed {seed}");
                why.reason == Reason::SearchExhausted
            }
        };
        assert!(!is_unschedulable(&snapshot, request) || got == 0, "seed {seed}");
        let mut best = 0;
        oracle.most(request, &mut Vec::new(), 0, &mut best);
        let Quorum::Count(least) = request.quorum else { unreachable!("the generator makes counts") };
        if best < least as usize {
            best = 0;
        }
        if exhausted {
            unsure += 1;
        } else {
            assert_eq!(got, best, "seed {seed}: {report:?}\n{request:?}");
        }
        if got > 0 { placed += 1 } else { refused += 1 }
    }
    assert!(placed > 500 && refused > 500, "both happen: {placed} placed, {refused} refused");
    assert!(unsure < 20, "{unsure} searches gave up on small clusters");
}

#[test]
fn plans_do_not_depend_on_the_order_of_nodes() {
    for seed in 10_000..10_300 {
        let mut random = Random::new(seed);
        let (snapshot, oracle, request) = random_case(&mut random);
        let mut backward = Snapshot::new(SharingMode::Labelled);
        for node in oracle.nodes.iter().rev() {
            backward.set_node(node.clone());
        }
        for (uid, charge) in snapshot.charges() {
            backward.charge(uid, charge.clone());
        }
        assert_eq!(snapshot, backward);
        let gangs = [request];
        assert_eq!(plan(&snapshot, &gangs), plan(&backward, &gangs), "seed {seed}");
    }
}
