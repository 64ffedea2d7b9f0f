//! Owners of pods: StatefulSets, Jobs and Deployments.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1 as typed;
use portcullis_core::objects::view;

use super::pods::typed_pod;
use super::*;

#[test]
fn every_field_of_the_stateful_set_view_exists_in_kubernetes() {
    let pod = typed_pod();
    let set = apps::StatefulSet {
        metadata: typed_meta("workers", LABELS),
        spec: apps::StatefulSetSpec {
            pod_management_policy: set("OrderedReady"),
            template: typed::PodTemplateSpec { metadata: Some(pod.metadata), spec: pod.spec },
            ..apps::StatefulSetSpec::default()
        },
        status: None,
    };
    let json = serde_json::to_string(&set).expect("a StatefulSet serialises");
    let read: view::StatefulSetView<'_> = serde_json::from_str(&json).expect("a StatefulSet reads");
    let json = serde_json::to_string(&typed_pod()).expect("a pod serialises");
    let pod: view::PodView<'_> = serde_json::from_str(&json).expect("a pod reads");
    let template = view::PodView { status: view::PodStatus::default(), ..pod };
    let expected = view::StatefulSetView {
        metadata: meta_view("workers", LABELS),
        spec: view::StatefulSetSpec { pod_management_policy: text("OrderedReady"), template },
    };
    assert_eq!(read, expected);
}

#[test]
fn every_field_of_the_owner_view_exists_in_kubernetes() {
    let pod = typed_pod();
    let job = batch::Job {
        metadata: typed_meta("train", LABELS),
        spec: Some(batch::JobSpec {
            parallelism: Some(4),
            completions: Some(8),
            suspend: Some(true),
            template: typed::PodTemplateSpec {
                metadata: pod.metadata.clone().into(),
                spec: pod.spec.clone(),
            },
            ..batch::JobSpec::default()
        }),
        status: Some(batch::JobStatus {
            succeeded: Some(2),
            uncounted_terminated_pods: Some(batch::UncountedTerminatedPods {
                succeeded: Some(vec!["uid-3".to_owned()]),
                ..batch::UncountedTerminatedPods::default()
            }),
            conditions: Some(vec![batch::JobCondition {
                type_: "Failed".to_owned(),
                status: "True".to_owned(),
                reason: set("BackoffLimitExceeded"),
                message: set("it has failed"),
                ..batch::JobCondition::default()
            }]),
            ..batch::JobStatus::default()
        }),
    };
    let json = serde_json::to_string(&job).expect("a Job serialises");
    let read: view::OwnerView<'_> = serde_json::from_str(&json).expect("a Job reads");
    let json = serde_json::to_string(&pod).expect("a pod serialises");
    let typed: view::PodView<'_> = serde_json::from_str(&json).expect("a pod reads");
    let template = view::PodView { status: view::PodStatus::default(), ..typed };
    let expected = view::OwnerView {
        metadata: meta_view("train", LABELS),
        spec: view::OwnerSpec {
            replicas: None,
            parallelism: Some(4),
            completions: Some(8),
            suspend: true,
            template: template.clone(),
        },
        status: view::OwnerStatus {
            succeeded: 2,
            uncounted_terminated_pods: view::UncountedTerminatedPods { succeeded: vec![text("uid-3")] },
            conditions: vec![view::Condition {
                r#type: text("Failed"),
                status: text("True"),
                reason: text("BackoffLimitExceeded"),
                message: text("it has failed"),
            }],
        },
    };
    assert_eq!(read, expected);
    let set = apps::Deployment {
        metadata: typed_meta("web", LABELS),
        spec: apps::DeploymentSpec {
            replicas: Some(3),
            template: typed::PodTemplateSpec { metadata: pod.metadata.into(), spec: pod.spec },
            ..apps::DeploymentSpec::default()
        },
        status: None,
    };
    let json = serde_json::to_string(&set).expect("a Deployment serialises");
    let read: view::OwnerView<'_> = serde_json::from_str(&json).expect("a Deployment reads");
    let expected = view::OwnerView {
        metadata: meta_view("web", LABELS),
        spec: view::OwnerSpec { replicas: Some(3), template, ..view::OwnerSpec::default() },
        status: view::OwnerStatus::default(),
    };
    assert_eq!(read, expected);
}
