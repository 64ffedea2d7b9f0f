//! Without the configuration of `/mutate` but with that of `/validate`: no member is created without its
//! gate.

use portcullis_test_cluster::program::{install, redirect, wait_gating};

use super::{cluster, gang, member, options, start};

/// The end of every such refusal.
const REMEDY: &str = "Portcullis adds it at creation: its mutating webhook was not called, or another webhook removed it. Create the pod again. If that fails, the platform team runs \"portcullis doctor\" and checks MutatingWebhookConfiguration portcullis.";

#[test]
fn a_member_without_a_gate_is_refused_with_a_remedy() {
    let Some(cluster) = cluster() else { return };
    let portcullis = start(&cluster, options());
    let namespace = cluster.namespace("ungated").unwrap();
    let file = |name: &str, text: &str| {
        let path = cluster.directory().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let train = file("train.yaml", &gang("train", 2, 2));
    let share = file("share.yaml", &member("app", 1, ", gpu-memory: \"4000\""));
    let by_hand =
        member("hand", 1, "").replace("spec:\n", "spec:\n  schedulingGates: [{name: portcullis.dev/gang}]\n");
    let by_hand = file("by-hand.yaml", &by_hand);
    let lacks_gate = |gang: &str| {
        format!(
            r#"spec.schedulingGates: "portcullis.dev/gang" is missing. A member of group "{gang}" without this gate starts without its gang, and a gate cannot be added later. {REMEDY}"#
        )
    };
    let lacks_equipment = format!(
        r#"* spec.tolerations: there is no toleration of "portcullis.dev/gpu-sharing=vram:NoSchedule". A member with a share of a card runs only on nodes with this taint. {REMEDY}
* spec.containers[0].env: NVIDIA_VISIBLE_DEVICES is missing; it must be a fieldRef to metadata.annotations['portcullis.dev/gpus']. A member with a share of a card reads its cards from it, and a variable cannot be changed later. {REMEDY}"#
    );
    let denied = format!(
        r#"Error from server (Invalid): error when creating "{train}": admission webhook "pods.portcullis.dev" denied the request:"#
    );
    let (app_gate, train_gate) = (lacks_gate("app"), lacks_gate("train"));
    cluster.check(
        &namespace,
        &format!(
            r#"
$ kubectl delete mutatingwebhookconfiguration portcullis
mutatingwebhookconfiguration.admissionregistration.k8s.io "portcullis" deleted
$~ kubectl apply --dry-run=server -f {share}
The Pod "app-1" is invalid:
* {app_gate}
{lacks_equipment}
$ kubectl apply -f {train}
podgroup.scheduling.run.ai/train created
{denied} Pod "train-1" is invalid: {train_gate}
{denied} Pod "train-2" is invalid: {train_gate}
$ kubectl run plain --image example.com/nothing
pod/plain created
$ kubectl apply -f {by_hand}
pod/hand-1 created
$~ kubectl get pods
NAME     READY   STATUS            RESTARTS   AGE
hand-1   0/1     SchedulingGated   0          …
plain    1/1     Running           0          …
"#
        ),
    );

    // With the configuration back, the same manifests start the gang.
    let repair = |components: &[String]| {
        install(&cluster, components).unwrap();
        redirect(&cluster, portcullis.balancer().port()).unwrap();
        wait_gating(&cluster).unwrap();
    };
    repair(&options().components);
    cluster.check(
        &namespace,
        &format!(
            "
$ kubectl apply -f {train} -f {share}
podgroup.scheduling.run.ai/train unchanged
pod/train-1 created
pod/train-2 created
pod/app-1 created
$~ kubectl get gangs train
NAME    PHASE      READY   NEEDS   WAITING FOR   POSITION   AGE
train   Admitted   2/2     …
"
        ),
    );

    // With the fallback the API server itself adds the gate, and nothing else.
    repair(&[options().components, vec!["gate-fallback".to_owned()]].concat());
    let again = cluster.namespace("gated-by-policy").unwrap();
    cluster.check(
        &again,
        &format!(
            r#"
$ kubectl delete mutatingwebhookconfiguration portcullis
mutatingwebhookconfiguration.admissionregistration.k8s.io "portcullis" deleted
$~ kubectl apply --dry-run=server -f {share}
The Pod "app-1" is invalid:
{lacks_equipment}
$ kubectl apply -f {train}
podgroup.scheduling.run.ai/train created
pod/train-1 created
pod/train-2 created
$~ kubectl get pods
NAME      READY   STATUS    RESTARTS   AGE
train-1   1/1     Running   0          …
train-2   1/1     Running   0          …
"#
        ),
    );
}
