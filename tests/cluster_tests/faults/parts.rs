//! Restarts of parts of the control plane, and a scheduler that is stopped when pods need it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_test_cluster::{Node, Part, Portcullis};
use serde_json::Value;

use super::stage::{Gang, MemberRequest, Stage, cluster, program};

#[test]
fn gangs_start_whole_while_parts_of_the_control_plane_restart() {
    let Some(cluster) = cluster() else { return };
    cluster.create_nodes(&[Node::shared("cards", 4, 32_768), Node::plain("elsewhere")]).unwrap();
    let mut options = program(&cluster);
    options.flags.push("--bind-timeout=3s".to_owned());
    let portcullis = Portcullis::start(&cluster, options).unwrap();
    let stage = Stage::new(&cluster, &portcullis);
    stage.watched(|| {
        let rows: [(&str, &[Part]); 4] = [
            ("kube-apiserver", &[Part::ApiServer]),
            ("etcd", &[Part::Etcd]),
            ("both", &[Part::Etcd, Part::ApiServer]),
            ("scheduler and controllers", &[Part::Scheduler, Part::ControllerManager]),
        ];
        for (what, parts) in rows {
            stream(&stage, what, parts);
        }
        absent_scheduler(&stage);
    });
}

/// Gangs are created and deleted while the parts are killed and restarted.
fn stream(stage: &Stage<'_>, what: &str, parts: &[Part]) {
    let plane = stage.cluster.own();
    let namespace = stage.namespace("restart");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let mut here = Vec::new();
            let mut index = 0;
            while !over.load(Ordering::Relaxed) || index < 8 {
                let gang = Gang::new(&namespace, &format!("gang-{index}"), 3, MemberRequest::Vram(10_000));
                stage.create_gang(&gang);
                here.push(gang);
                index += 1;
                if here.len() > 5 {
                    stage.delete_gang(&here.remove(0));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            here
        });
        std::thread::sleep(Duration::from_millis(300));
        for part in parts {
            plane.stop_part(*part);
        }
        std::thread::sleep(Duration::from_millis(300));
        for part in parts {
            plane.start_part(*part).unwrap();
        }
        std::thread::sleep(Duration::from_millis(500));
        over.store(true, Ordering::Relaxed);
        let here = stream.join().unwrap();
        stage.settle(what);
        for gang in &here {
            stage.delete_gang(gang);
        }
        stage.wait_gone(&namespace);
    });
}

/// No scheduler binds the lifted pods. The gang is reported as Torn after the timeout, and recovers when they
/// are bound.
fn absent_scheduler(stage: &Stage<'_>) {
    let plane = stage.cluster.own();
    let namespace = stage.namespace("unbound");
    let soon = Gang::new(&namespace, "soon", 3, MemberRequest::Vram(10_000));
    plane.stop_part(Part::Scheduler);
    // The members are nominated. A restarted scheduler has to read the nominations again.
    stage.create_rival(&namespace);
    stage.create_gang(&soon);
    let pods = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=gang");
    let lifted = |pod: &Value| pod["spec"]["schedulingGates"].is_null();
    let all_lifted = |list: &Value| list["items"].as_array().is_some_and(|pods| pods.iter().all(lifted));
    stage.cluster.wait(&pods, "all are lifted", all_lifted);
    let pod = stage.cluster.api().get(&format!("/api/v1/namespaces/{namespace}/pods/soon-0")).unwrap();
    assert_eq!(pod["status"]["nominatedNodeName"], "cards");
    plane.start_part(Part::Scheduler).unwrap();
    stage.wait_phase(&soon, "Admitted");
    stage.settle("a scheduler that is restarted");

    let late = Gang::new(&namespace, "late", 3, MemberRequest::Vram(10_000));
    plane.stop_part(Part::Scheduler);
    stage.create_gang(&late);
    stage.wait_phase(&late, "Torn");
    stage.settle("a scheduler that stays away");
    plane.start_part(Part::Scheduler).unwrap();
    stage.wait_phase(&late, "Admitted");
    stage.settle("a scheduler that is back");
    stage.cluster.api().delete(&format!("/api/v1/namespaces/{namespace}/pods/rival")).unwrap();
    for gang in [&soon, &late] {
        stage.delete_gang(gang);
    }
    stage.wait_gone(&namespace);
}
