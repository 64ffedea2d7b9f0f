//! Changes between plan and lift. The proxy holds the answer to the read of the lease, so that the engine may
//! not lift yet. Meanwhile a node or a pod changes, so that the plan no longer fits.

use http::Method;
use portcullis_test_cluster::{FaultAction, Node, Portcullis, ProgramOptions, Proxy, Rule};
use serde_json::{Value, json};

use super::stage::{Gang, MemberRequest, Stage, cluster, program};

#[test]
fn gangs_start_whole_when_nodes_and_pods_change_between_plan_and_lift() {
    let Some(cluster) = cluster() else { return };
    cluster.create_nodes(&[Node::plain("elsewhere")]).unwrap();
    let proxy = Proxy::start(&cluster, 0).unwrap();
    let mut options =
        ProgramOptions { kubeconfig: Some(proxy.kubeconfig().to_path_buf()), ..program(&cluster) };
    options.flags.push("--bind-timeout=3s".to_owned());
    let portcullis = Portcullis::start(&cluster, options).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    stage.watched(|| {
        for ask in [MemberRequest::Vram(10_000), MemberRequest::Whole(2)] {
            for (what, change) in CHANGES {
                node_changes(&stage, &proxy, &format!("{what}, {ask:?}"), ask, *change);
            }
            pod_deleted(&stage, &proxy, ask);
        }
        for node_name in [Some("first"), None] {
            capacity_used(&stage, &proxy, node_name);
        }
        node_deleted_in_the_middle(&stage, &proxy);
    });
}

type ChangeNode = fn(&Stage<'_>);

const FIRST: &str = "/api/v1/nodes/first";

const CHANGES: &[(&str, ChangeNode)] = &[
    ("deleted", |stage| stage.cluster.api().delete(FIRST).unwrap()),
    ("cordoned", |stage| merge(stage, &json!({"spec": {"unschedulable": true}}))),
    ("tainted", |stage| {
        let taint = json!({"key": "broken", "value": "yes", "effect": "NoSchedule"});
        let add = json!([{"op": "add", "path": "/spec/taints/-", "value": taint}]);
        let all = json!([{"op": "add", "path": "/spec/taints", "value": [taint]}]);
        let api = stage.cluster.api();
        api.patch(FIRST, &add).or_else(|_| api.patch(FIRST, &all)).unwrap();
    }),
];

fn merge(stage: &Stage<'_>, change: &Value) {
    stage.cluster.api().merge(FIRST, change).unwrap();
}

fn node(name: &str, ask: MemberRequest) -> Node {
    match ask {
        MemberRequest::Whole(_) => Node::whole(name, 8),
        _ => Node::shared(name, 1, 32_768),
    }
}

/// Holds every read of the lease.
fn hold(proxy: &Proxy) {
    proxy.set([Rule::new("hold", FaultAction::Hold).methods(&[Method::GET]).path("/leases/portcullis")]);
}

/// A gang that is planned on the node `first` and not lifted.
fn planned(stage: &Stage<'_>, proxy: &Proxy, what: &str, ask: MemberRequest) -> Gang {
    let namespace = stage.namespace("change");
    stage.cluster.create_nodes(&[node("first", ask)]).unwrap();
    hold(proxy);
    let gang = Gang::new(&namespace, "gang", 3, ask);
    stage.create_gang(&gang);
    stage
        .cluster
        .wait(&gang.path(), &format!("{what}: it is planned on the first node"), |gang| on_first(gang) == 3);
    gang
}

/// The number of members that the plan assigns to the node `first`.
fn on_first(gang: &Value) -> usize {
    let members = gang["status"]["plan"]["members"].as_array();
    members.map_or(0, |members| members.iter().filter(|member| member["node"] == "first").count())
}

fn pods(stage: &Stage<'_>, gang: &Gang) -> Vec<Value> {
    let list =
        stage.cluster.api().get(&format!("/api/v1/namespaces/{}/pods?labelSelector=gang", gang.namespace));
    list.unwrap()["items"].as_array().cloned().unwrap_or_default()
}

fn all_gated(stage: &Stage<'_>, gang: &Gang) -> bool {
    pods(stage, gang)
        .iter()
        .all(|pod| pod["spec"]["schedulingGates"].as_array().is_some_and(|all| !all.is_empty()))
}

fn leave(stage: &Stage<'_>, gang: &Gang) {
    stage.delete_gang(gang);
    stage.wait_gone(&gang.namespace);
    for name in ["first", "second"] {
        stage.cluster.api().delete(&format!("/api/v1/nodes/{name}?gracePeriodSeconds=0")).unwrap();
    }
}

fn node_changes(stage: &Stage<'_>, proxy: &Proxy, what: &str, ask: MemberRequest, change: ChangeNode) {
    let gang = planned(stage, proxy, what, ask);
    stage.cluster.create_nodes(&[node("second", ask)]).unwrap();
    change(stage);
    stage.cluster.wait(&gang.path(), &format!("{what}: the plan is dropped"), |gang| on_first(gang) == 0);
    assert!(all_gated(stage, &gang), "{what}: lifted before the lease was read");
    proxy.set([]);
    stage.wait_phase(&gang, "Admitted");
    for pod in pods(stage, &gang) {
        assert_eq!(pod["spec"]["nodeName"], "second", "{what}");
    }
    stage.settle(what);
    leave(stage, &gang);
}

fn pod_deleted(stage: &Stage<'_>, proxy: &Proxy, ask: MemberRequest) {
    let what = format!("a member is deleted, {ask:?}");
    let gang = planned(stage, proxy, &what, ask);
    let collection = format!("/api/v1/namespaces/{}/pods", gang.namespace);
    stage.cluster.api().delete(&format!("{collection}/gang-1")).unwrap();
    stage.cluster.wait(&gang.path(), &format!("{what}: the plan is dropped"), |gang| on_first(gang) == 0);
    proxy.set([]);
    stage.settle(&what);
    assert!(all_gated(stage, &gang), "{what}: two of three are lifted");
    stage.create(&collection, &gang.pod(1));
    stage.wait_phase(&gang, "Admitted");
    stage.settle(&what);
    leave(stage, &gang);
}

/// A pod without a gang is bound to the planned node, by its creator or by the scheduler.
fn capacity_used(stage: &Stage<'_>, proxy: &Proxy, node_name: Option<&str>) {
    let what = format!("another pod uses the capacity of {node_name:?}");
    let gang = planned(stage, proxy, &what, MemberRequest::Whole(2));
    let collection = format!("/api/v1/namespaces/{}/pods", gang.namespace);
    let resources = json!({"limits": {"nvidia.com/gpu": "4"}});
    let mut thief = json!({
        "metadata": {"name": "thief"},
        "spec": {"containers": [{"name": "main", "image": "example.com/nothing", "resources": resources}]},
    });
    if let Some(name) = node_name {
        thief["spec"]["nodeName"] = name.into();
    }
    stage.create(&collection, &thief);
    stage
        .cluster
        .wait(&format!("{collection}/thief"), "it is bound", |pod| pod["spec"]["nodeName"] == "first");
    stage.cluster.wait(&gang.path(), &format!("{what}: the plan is dropped"), |gang| on_first(gang) == 0);
    proxy.set([]);
    stage.wait_phase(&gang, "Waiting");
    stage.settle(&what);
    assert!(all_gated(stage, &gang), "{what}: lifted all the same");
    stage.cluster.api().delete(&format!("{collection}/thief?gracePeriodSeconds=0")).unwrap();
    stage.wait_phase(&gang, "Admitted");
    stage.settle(&what);
    leave(stage, &gang);
}

/// The node is deleted after the first lift. The gang is reported as Torn, and recovers when the node is
/// back.
fn node_deleted_in_the_middle(stage: &Stage<'_>, proxy: &Proxy) {
    let what = "the node goes in the middle";
    let namespace = stage.namespace("change");
    let ask = MemberRequest::Vram(10_000);
    stage.cluster.own().pause(portcullis_test_cluster::Part::Scheduler).unwrap();
    stage.cluster.create_nodes(&[node("first", ask)]).unwrap();
    proxy.set([Rule::new("hold", FaultAction::Hold)
        .methods(&[Method::PATCH])
        .path("/pods/")
        .except("dryRun")
        .from_to(2, u64::MAX)]);
    let gang = Gang::new(&namespace, "gang", 3, ask);
    stage.create_gang(&gang);
    let list = format!("/api/v1/namespaces/{namespace}/pods");
    stage.cluster.wait(&list, "one pod is lifted", |list| {
        list["items"]
            .as_array()
            .is_some_and(|pods| pods.iter().any(|pod| pod["spec"]["schedulingGates"].is_null()))
    });
    stage.cluster.api().delete(FIRST).unwrap();
    stage.cluster.own().resume(portcullis_test_cluster::Part::Scheduler).unwrap();
    proxy.set([]);
    stage.wait_phase(&gang, "Torn");
    stage.settle(what);
    stage.cluster.create_nodes(&[node("first", ask)]).unwrap();
    stage.wait_phase(&gang, "Admitted");
    stage.settle(what);
    leave(stage, &gang);
}
