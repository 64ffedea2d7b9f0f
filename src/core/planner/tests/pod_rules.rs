//! Pod affinity, anti-affinity and topology spread, among members and against pods that run.

use super::*;
use crate::model::Reason;
use crate::planner::{Explanation, PlanningOutcome, check, is_unschedulable, plan};
use crate::pod::Pod;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A node in a zone.
pub(super) fn zoned(name: &str, zone: &str) -> Node {
    let mut made = node(name);
    made.labels.insert(str(ZONE), str(zone));
    made
}

/// Labels and shape of a pod `app: APP` in namespace `default` with these fields in its spec.
pub(super) fn pod(app: &str, spec: &str) -> (PodLabels, Shape) {
    let json = format!(
        r#"{{"metadata":{{"namespace":"default","name":"p","uid":"p","labels":{{"app":"{app}"}}}},
            "spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"1"}}}}}}]{spec}}}}}"#
    );
    let pod = Pod::read(&json).expect("a pod");
    (pod.labels.clone(), Shape::clone(&pod.shape))
}

pub(super) fn term(app: &str, key: &str) -> String {
    format!(r#"{{"labelSelector":{{"matchLabels":{{"app":"{app}"}}}},"topologyKey":"{key}"}}"#)
}

pub(super) fn affinity(kind: &str, term: &str) -> String {
    format!(r#","affinity":{{"{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{term}]}}}}"#)
}

pub(super) fn spread(app: &str, key: &str, more: &str) -> String {
    format!(
        r#","topologySpreadConstraints":[{{"labelSelector":{{"matchLabels":{{"app":"{app}"}}}},
            "topologyKey":"{key}","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"{more}}}]"#
    )
}

/// A gang of these pods that needs all of them.
pub(super) fn gang_of(name: &str, pods: Vec<(PodLabels, Shape)>) -> PlanningRequest {
    let (labels, shapes): (Vec<_>, Vec<_>) = pods.into_iter().unzip();
    let mut request = gang(name, shapes);
    for (member, labels) in request.members.iter_mut().zip(labels) {
        member.labels = labels;
    }
    request
}

pub(super) fn run(snapshot: &mut Snapshot, name: &str, node: &str, (labels, shape): (PodLabels, Shape)) {
    charge(snapshot, name, node, shape, CardAllocation::Unshared);
    let uid = PodUid(str(format!("uid-{name}")));
    let charge = Charge { labels, ..snapshot.charged(&uid).expect("just charged").clone() };
    snapshot.charge(&uid, charge);
    snapshot.assert_consistent();
}

/// The places of a gang, checked.
fn places(snapshot: &Snapshot, request: &PlanningRequest) -> Vec<String> {
    let gangs = [request.clone()];
    let (made, _) = plan(snapshot, &gangs);
    assert_eq!(check(snapshot, &gangs, &made), Ok(()));
    lines(&made)
}

fn why(snapshot: &Snapshot, request: &PlanningRequest) -> Explanation {
    let (made, mut report) = plan(snapshot, std::slice::from_ref(request));
    assert_eq!(lines(&made), Vec::<String>::new());
    assert!(is_unschedulable(snapshot, request));
    match report.outcomes.remove(&request.gang) {
        Some(PlanningOutcome::Waiting(explanation)) => explanation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_with_hostname_anti_affinity_get_a_node_each() {
    let apart = affinity("podAntiAffinity", &term("a", names::HOSTNAME_LABEL));
    let two = gang_of("g", vec![pod("a", &apart); 2]);
    let snapshot = cluster([node("n1"), node("n2")]);
    assert_eq!(places(&snapshot, &two), ["g-0 -> n1", "g-1 -> n2"]);
    let explanation = why(&cluster([node("n1")]), &two);
    assert_eq!(explanation.reason, Reason::PodAffinityMismatch);
    assert_eq!(
        explanation.message,
        "1 of 2 members fit, default/g-1 does not; 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules"
    );
}

#[test]
fn members_with_affinity_go_to_the_zone_of_the_pod() {
    let near = affinity("podAffinity", &term("db", ZONE));
    let two = gang_of("g", vec![pod("a", &near); 2]);
    let mut snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    let explanation = why(&snapshot, &two);
    assert_eq!(explanation.reason, Reason::PodAffinityMismatch);
    assert!(explanation.message.ends_with("2 node(s) didn't match pod affinity rules"), "{explanation:?}");
    run(&mut snapshot, "db", "n2", pod("db", ""));
    assert_eq!(places(&snapshot, &two), ["g-0 -> n2", "g-1 -> n2"]);
}

#[test]
fn the_anti_affinity_of_a_running_pod_keeps_members_away() {
    let lonely = pod("db", &affinity("podAntiAffinity", &term("a", ZONE)));
    let two = gang_of("g", vec![pod("a", ""); 2]);
    let mut snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    run(&mut snapshot, "db", "n1", lonely.clone());
    assert_eq!(places(&snapshot, &two), ["g-0 -> n2", "g-1 -> n2"]);
    run(&mut snapshot, "db-2", "n2", lonely);
    let explanation = why(&snapshot, &two);
    assert!(
        explanation.message.ends_with("2 node(s) didn't satisfy existing pods anti-affinity rules"),
        "{explanation:?}"
    );
    assert_eq!(explanation.remedy.as_deref(), Some("wait for default/db to end (node n1)"));
}

#[test]
fn four_members_spread_over_two_zones_two_each() {
    let four = gang_of("g", vec![pod("a", &spread("a", ZONE, "")); 4]);
    let nodes = [zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")];
    let snapshot = cluster(nodes);
    let placed = places(&snapshot, &four);
    assert_eq!(placed.iter().filter(|line| line.ends_with("n3")).count(), 2, "{placed:?}");
    let mut small = zoned("n3", "b");
    small.max_pods = 1;
    let snapshot = cluster([zoned("n1", "a"), zoned("n2", "a"), small]);
    let explanation = why(&snapshot, &four);
    assert!(
        explanation.message.contains("2 node(s) didn't match pod topology spread constraints"),
        "{explanation:?}"
    );
}

#[test]
fn a_node_without_the_topology_label_gets_no_member() {
    let one = gang_of("g", vec![pod("a", &spread("a", ZONE, ""))]);
    let explanation = why(&cluster([node("n1")]), &one);
    assert!(
        explanation
            .message
            .ends_with("1 node(s) didn't match pod topology spread constraints (missing required label)"),
        "{explanation:?}"
    );
}

#[test]
fn fewer_domains_than_min_domains_count_as_an_empty_one() {
    let snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    let check = |members: usize, min: u32, fits: bool| {
        let constraint = spread("a", ZONE, &format!(r#","minDomains":{min}"#));
        let request = gang_of("g", vec![pod("a", &constraint); members]);
        assert_eq!(!places(&snapshot, &request).is_empty(), fits, "{members} members, {min} domains");
        assert_eq!(request.members[0].shape.tolerates_pin(), min < 2);
    };
    check(2, 3, true);
    check(3, 3, false);
    check(3, 2, true);
    check(4, 1, true);
}

#[test]
fn zones_that_node_affinity_excludes_are_domains_only_when_it_is_ignored() {
    let snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    let in_a = format!(r#","nodeSelector":{{"{ZONE}":"a"}}"#);
    let check = |policy: &str, fits: bool| {
        let constraint = spread("a", ZONE, &format!(r#","nodeAffinityPolicy":"{policy}""#));
        let request = gang_of("g", vec![pod("a", &format!("{constraint}{in_a}")); 2]);
        assert_eq!(!places(&snapshot, &request).is_empty(), fits, "{policy}");
    };
    check("Honor", true);
    check("Ignore", false);
}

#[test]
fn tainted_zones_are_no_domains_only_when_taints_are_honored() {
    let mut tainted = zoned("n2", "b");
    tainted.taints.push(taint("test", "", TaintEffect::NoSchedule));
    let snapshot = cluster([zoned("n1", "a"), tainted]);
    let check = |policy: &str, fits: bool| {
        let constraint = spread("a", ZONE, &format!(r#","nodeTaintsPolicy":"{policy}""#));
        let request = gang_of("g", vec![pod("a", &constraint); 2]);
        assert_eq!(!places(&snapshot, &request).is_empty(), fits, "{policy}");
    };
    check("Honor", true);
    check("Ignore", false);
}

#[test]
fn members_with_affinity_to_each_other_go_to_a_zone_that_holds_all() {
    let together = gang_of("g", vec![pod("a", &affinity("podAffinity", &term("a", ZONE))); 3]);
    let small = |name: &str, zone: &str| {
        let mut made = zoned(name, zone);
        made.max_pods = 1;
        made
    };
    let nodes = [small("n1", "a"), small("n2", "a"), small("n3", "b"), small("n4", "b"), small("n5", "b")];
    assert_eq!(places(&cluster(nodes.clone()), &together), ["g-0 -> n3", "g-1 -> n4", "g-2 -> n5"]);
    let explanation = why(&cluster(nodes[..4].to_vec()), &together);
    assert!(explanation.message.contains("2 node(s) didn't match pod affinity rules"), "{explanation:?}");
}

#[test]
fn members_that_wait_for_a_member_are_placed_after_it() {
    let worker = pod("worker", &affinity("podAffinity", &term("leader", ZONE)));
    let request = gang_of("g", vec![worker.clone(), worker, pod("leader", "")]);
    let snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    assert_eq!(places(&snapshot, &request).len(), 3);
    // Each waits for the other: the scheduler never binds the first one.
    let a = pod("a", &affinity("podAffinity", &term("b", ZONE)));
    let b = pod("b", &affinity("podAffinity", &term("a", ZONE)));
    let explanation = why(&snapshot, &gang_of("g", vec![a, b]));
    assert_eq!(explanation.reason, Reason::PodAffinityMismatch);
}

#[test]
fn gangs_of_a_round_see_each_other() {
    let apart = affinity("podAntiAffinity", &term("a", ZONE));
    let gangs: Vec<PlanningRequest> =
        ["g1", "g2", "g3"].map(|name| gang_of(name, vec![pod("a", &apart)])).into();
    let snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    let (made, _) = plan(&snapshot, &gangs);
    assert_eq!(check(&snapshot, &gangs, &made), Ok(()));
    assert_eq!(lines(&made), ["g1-0 -> n1", "g2-0 -> n2"]);
}

#[test]
fn a_terminating_pod_counts_for_affinity_and_not_for_spread() {
    let mut snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    run(&mut snapshot, "old", "n1", pod("a", ""));
    let apart = gang_of("g", vec![pod("a", &affinity("podAntiAffinity", &term("a", ZONE)))]);
    let even = gang_of("g", vec![pod("a", &spread("a", ZONE, "")); 2]);
    assert_eq!(places(&snapshot, &apart), ["g-0 -> n2"]);
    let placed = places(&snapshot, &even);
    assert!(placed.iter().any(|line| line.ends_with("n2")), "{placed:?}");
    let uid = PodUid(str("uid-old"));
    let ending = Charge { terminating: true, ..snapshot.charged(&uid).expect("it runs").clone() };
    snapshot.charge(&uid, ending);
    snapshot.assert_consistent();
    assert_eq!(places(&snapshot, &apart), ["g-0 -> n2"]);
    assert_eq!(places(&snapshot, &even).len(), 2);
}

#[test]
fn a_namespace_selector_selects_pods_of_other_namespaces() {
    let selector = |selector: &str| {
        let term = format!(
            r#"{{"labelSelector":{{}},"topologyKey":"{ZONE}","namespaceSelector":{{"matchLabels":{selector}}}}}"#
        );
        gang_of("g", vec![pod("a", &affinity("podAntiAffinity", &term))])
    };
    let mut snapshot = cluster([zoned("n1", "a"), zoned("n2", "b")]);
    let (_, shape) = pod("x", "");
    run(&mut snapshot, "other", "n1", (PodLabels::new("team", [("app", "x")]), shape));
    let by_name = selector(r#"{"kubernetes.io/metadata.name":"team"}"#);
    assert_eq!(places(&snapshot, &by_name), ["g-0 -> n2"]);
    let by_label = selector(r#"{"tier":"gold"}"#);
    assert_eq!(places(&snapshot, &by_label), ["g-0 -> n1"]);
    assert!(by_label.members[0].shape.tolerates_pin());
    assert!(snapshot.set_namespace(&str("team"), Some(BTreeMap::from([(str("tier"), str("gold"))]))));
    assert_eq!(places(&snapshot, &by_label), ["g-0 -> n2"]);
}

#[test]
fn label_keys_of_a_template_are_merged_into_the_selector() {
    let read = |uid: &str, keys: &str| {
        let term = format!(r#"{{"labelSelector":{{}},"topologyKey":"z",{keys}}}"#);
        let json = format!(
            r#"{{"metadata":{{"namespace":"ml","name":"p","uid":"{uid}","labels":{{"set":"1"}}}},
                "spec":{{"containers":[]{}}}}}"#,
            affinity("podAffinity", &term)
        );
        let view = serde_json::from_str(&json).expect("a pod");
        let shape = Shape::of(&view).expect("a shape");
        shape.pod_rules.expect("rules").affinity[0].clone()
    };
    let matches = |uid: &str, keys: &str, set: &str| {
        read(uid, keys).matches(&PodLabels::new("ml", [("set", set)]), |_| None)
    };
    let keys = r#""matchLabelKeys":["set","absent"]"#;
    assert_eq!((matches("", keys, "1"), matches("", keys, "2")), (true, false));
    assert_eq!((matches("u", keys, "1"), matches("u", keys, "2")), (true, true), "merged when it was stored");
    let keys = r#""mismatchLabelKeys":["set"]"#;
    assert_eq!((matches("", keys, "1"), matches("", keys, "2")), (false, true));
}
