//! While no replica answers: which requests succeed, which are refused, and which are forbidden.

use portcullis_test_cluster::program::wait_gating;
use serde_json::json;

use super::{cluster, gang, member, options, start};

#[test]
fn without_the_webhook_only_members_are_refused() {
    let Some(cluster) = cluster() else { return };
    let portcullis = start(&cluster, options());
    let namespace = cluster.namespace("away").unwrap();
    cluster.apply(&namespace, &gang("train", 3, 2)).expect_success();
    let pod = format!("/api/v1/namespaces/{namespace}/pods/train-1");
    cluster.api().merge(&pod, &json!({"metadata": {"finalizers": ["example.com/held"]}})).unwrap();
    let gate_kept = r#"
$ kubectl patch pod train-1 --type=json -p '[{"op":"remove","path":"/spec/schedulingGates"}]'
Error from server (Forbidden): pods "train-1" is forbidden: ValidatingAdmissionPolicy 'portcullis-gate' with binding 'portcullis-gate' denied request: the gate portcullis.dev/gang is lifted by Portcullis alone, for the whole gang at once: kubectl get gangs shows what it waits for. To lift it by hand all the same, first run: kubectl delete validatingadmissionpolicybinding portcullis-gate
"#;
    // While a replica answers, an administrator may neither remove the gate of one pod nor move the pod to
    // another gang.
    cluster.check(&namespace, gate_kept);
    cluster.check(
        &namespace,
        r#"
$ kubectl label pod train-1 --overwrite kai.scheduler/podgroup=another
The Pod "train-1" is invalid: metadata.labels[kai.scheduler/podgroup]: "another" is not the group in the annotation pod-group-name ("train"). Give both the name of one PodGroup, or remove one of them: the other is then filled in.
$ kubectl get pods -L kai.scheduler/podgroup
NAME      READY   STATUS            RESTARTS   AGE   PODGROUP
train-1   0/1     SchedulingGated   0          …     train
train-2   0/1     SchedulingGated   0          …     train
"#,
    );

    for replica in 0..2 {
        portcullis.kill(replica);
    }
    std::fs::write(cluster.directory().join("member.yaml"), member("train", 3, "")).unwrap();
    let file = cluster.directory().join("member.yaml");
    cluster.check(&namespace, gate_kept);
    cluster.check(
        &namespace,
        &format!(
            r#"
$ kubectl apply -f {file}
Error from server (InternalError): error when creating "{file}": Internal error occurred: failed calling webhook "members.portcullis.dev": …
$ kubectl apply -f tests/exercises/pytorch-training.yaml
podgroup.scheduling.sigs.k8s.io/pytorch-training-group created
Error from server (InternalError): error when creating "tests/exercises/pytorch-training.yaml": Internal error occurred: failed calling webhook "owners.portcullis.dev": …
$ kubectl label pod train-1 --overwrite kai.scheduler/podgroup=another
Error from server (InternalError): Internal error occurred: failed calling webhook "changes.portcullis.dev": …
$ kubectl run plain --image example.com/nothing
pod/plain created
$ kubectl label pod train-1 colour=blue
pod/train-1 labeled
$~ kubectl get pod plain
NAME    READY   STATUS    RESTARTS   AGE
plain   1/1     Running   0          …
$ kubectl patch pod train-2 --subresource resize -p '{{"spec":{{"containers":[{{"name":"main","resources":{{"requests":{{"cpu":"20m"}}}}}}]}}}}'
pod/train-2 patched
$ kubectl patch pod train-2 --subresource ephemeralcontainers -p '{{"spec":{{"ephemeralContainers":[{{"name":"look","image":"example.com/nothing"}}]}}}}'
pod/train-2 patched
$ kubectl delete pod train-1 --wait=false
pod "train-1" deleted from {namespace} namespace
$ kubectl patch pod train-1 --type=json -p '[{{"op":"remove","path":"/metadata/finalizers"}}]'
pod/train-1 patched
$~ kubectl get pods
NAME      READY   STATUS            RESTARTS   AGE
plain     1/1     Running           0          …
train-2   0/1     SchedulingGated   0          …
"#,
            file = file.display()
        ),
    );

    // The replicas are back: the refused pods are created, and the gang starts.
    portcullis.revive(0).unwrap();
    portcullis.wait_ready(0).unwrap();
    wait_gating(&cluster).unwrap();
    for number in [1, 3] {
        cluster.apply(&namespace, &member("train", number, "")).expect_success();
    }
    cluster.check(
        &namespace,
        "
$~ kubectl get gangs
NAME    PHASE      READY   NEEDS   WAITING FOR   POSITION   AGE
train   Admitted   3/3     …
",
    );
}

#[test]
fn with_the_fallback_gangs_are_gated_without_the_webhook() {
    let Some(cluster) = cluster() else { return };
    let options = {
        let mut options = options();
        options.components.push("gate-fallback".to_owned());
        options
    };
    let portcullis = start(&cluster, options);
    for replica in 0..2 {
        portcullis.kill(replica);
    }
    let namespace = cluster.namespace("fallback").unwrap();
    let (train, share) = (cluster.directory().join("train.yaml"), cluster.directory().join("share.yaml"));
    std::fs::write(&train, gang("train", 2, 2)).unwrap();
    std::fs::write(&share, member("app", 1, ", gpu-memory: \"4000\"")).unwrap();
    cluster.check(
        &namespace,
        &format!(
            r#"
$ kubectl apply -f {train}
podgroup.scheduling.run.ai/train created
pod/train-1 created
pod/train-2 created
$ kubectl apply -f {share}
Error from server (InternalError): error when creating "{share}": Internal error occurred: failed calling webhook "pods.portcullis.dev": …
$ kubectl get pods
NAME      READY   STATUS            RESTARTS   AGE
train-1   0/1     SchedulingGated   0          …
train-2   0/1     SchedulingGated   0          …
$ portcullis doctor; echo "exit $?"
…
FAIL  trial pod           the webhook does not answer: Internal error occurred: failed calling webhook "pods.portcullis.dev": …
      kubectl logs -n portcullis-system deployment/portcullis --all-pods --tail=50
…
exit 1
"#,
            train = train.display(),
            share = share.display()
        ),
    );

    // The fallback gates a pod with a single key of a group as well.
    let lonely = "apiVersion: v1\nkind: Pod\nmetadata: {name: lonely, annotations: {pod-group-name: other}}\n\
                  spec: {containers: [{name: main, image: example.com/nothing}]}\n";
    cluster.apply(&namespace, lonely).expect_success();
    let lonely = cluster.api().get(&format!("/api/v1/namespaces/{namespace}/pods/lonely")).unwrap();
    assert_eq!(lonely["spec"]["schedulingGates"], json!([{"name": "portcullis.dev/gang"}]));

    portcullis.revive(1).unwrap();
    portcullis.wait_ready(1).unwrap();
    cluster.check(
        &namespace,
        &format!(
            "
$~ kubectl get pods
NAME      READY   STATUS            RESTARTS   AGE
lonely    0/1     SchedulingGated   0          …
train-1   1/1     Running           0          …
train-2   1/1     Running           0          …
$~ kubectl apply -f {share}
pod/app-1 created
",
            share = share.display()
        ),
    );
}
