//! `portcullis doctor` in a healthy cluster, in broken ones, and after an uninstall.

use portcullis_test_cluster::guard::Signal;
use portcullis_test_cluster::program::{install, redirect, wait_gating};

use super::{cluster, gang, options, start};

/// The commands of manifests/README.md that remove the gates of all pods.
fn remedy() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let remedy: Vec<String> = text
        .lines()
        .filter(|line| {
            line.starts_with("kubectl delete validating") || line.starts_with("kubectl get pods -A")
        })
        .map(str::to_owned)
        .collect();
    assert_eq!(remedy.len(), 2, "{remedy:#?}");
    remedy
}

#[test]
fn the_doctor_reports_each_fault_and_its_remedy() {
    let Some(cluster) = cluster() else { return };
    let portcullis = start(&cluster, options());
    let repair = || {
        install(&cluster, &options().components).unwrap();
        redirect(&cluster, portcullis.balancer().port()).unwrap();
        wait_gating(&cluster).unwrap();
    };

    cluster.check(
        "default",
        r#"
$~ portcullis doctor; echo "exit $?"
ok    API server          v1.…
ok    gang definition     gangs.portcullis.dev/v1alpha1 is served
ok    mutating webhook    registered: members.portcullis.dev, members-coscheduling.portcullis.dev, members-coscheduling-old.portcullis.dev, members-lws.portcullis.dev, members-plain.portcullis.dev, pods.portcullis.dev, owners.portcullis.dev
ok    validating webhook  registered: pods.portcullis.dev, changes.portcullis.dev, groups.portcullis.dev
ok    certificate         caBundle matches the leaf certificate, valid until …
ok    gate guard          only Portcullis can remove its gate
ok    trial pod           a gang member got its gate (dry run in default)
ok    permissions         the service account has all 70 permissions that it needs
ok    replicas            2 of 2 are available
ok    leader              portcullis-… renewed its lease … ago
ok    GPU labels          GPU memory is known on 2 nodes
ok    shared nodes        1 node shared by memory
ok    scheduler names     no pod waits for an unknown scheduler
ok    gated pods          no pod waits behind the gate

No problems found.
exit 0
"#,
    );

    // The webhook configurations are deleted.
    cluster.check(
        "default",
        r#"
$ kubectl delete mutatingwebhookconfiguration portcullis
mutatingwebhookconfiguration.admissionregistration.k8s.io "portcullis" deleted
$~ portcullis doctor; echo "exit $?"
…
FAIL  mutating webhook    not registered: new gang members get no gate, so the validating webhook denies them
      kubectl apply -k manifests/
…
FAIL  trial pod           a gang member was denied because fields of the mutating webhook are missing: spec.schedulingGates, spec.tolerations, spec.containers[0].env (dry run in default)
      kubectl apply -k manifests/
…
2 failures.
exit 1
"#,
    );
    repair();

    // A deployment tool removes `caBundle` while no replica runs that could repair it.
    for replica in 0..2 {
        portcullis.signal(replica, Signal::STOP).unwrap();
    }
    cluster.check(
        "default",
        r#"
$ kubectl patch validatingwebhookconfiguration portcullis --type=json -p '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]'
validatingwebhookconfiguration.admissionregistration.k8s.io/portcullis patched
$ portcullis doctor; echo "exit $?"
…
FAIL  certificate         caBundle of pods.portcullis.dev is empty: the API server cannot verify the webhook's certificate
      kubectl logs -n portcullis-system deployment/portcullis --all-pods --tail=50
…
FAIL  trial pod           the webhook does not answer: …
      kubectl logs -n portcullis-system deployment/portcullis --all-pods --tail=50
…
exit 1
"#,
    );
    for replica in 0..2 {
        portcullis.signal(replica, Signal::CONT).unwrap();
    }
    cluster.check(
        "default",
        "
$~ portcullis doctor; echo \"exit $?\"
…
ok    certificate         caBundle matches the leaf certificate, valid until …
…
No problems found.
exit 0
",
    );

    // Nodes and pods with labels that have no effect.
    cluster.check(
        "default",
        r#"
$ cat <<E | kubectl apply -f -
> apiVersion: v1
> kind: Node
> metadata: {name: half, labels: {nvidia.com/gpu.count: "1", nvidia.com/gpu.memory: "32768", portcullis.dev/gpu-sharing: vram}}
> ---
> apiVersion: v1
> kind: Node
> metadata: {name: unlabelled}
> status: {capacity: {nvidia.com/gpu: 4}, allocatable: {nvidia.com/gpu: 4}}
> ---
> apiVersion: v1
> kind: Pod
> metadata: {name: whole}
> spec:
>   nodeName: shared-1
>   containers: [{name: main, image: example.com/nothing, resources: {limits: {nvidia.com/gpu: 1}}}]
> ---
> apiVersion: v1
> kind: Pod
> metadata: {name: forgotten}
> spec:
>   schedulerName: not-installed
>   containers: [{name: main, image: example.com/nothing}]
> E
node/half created
node/unlabelled created
pod/whole created
pod/forgotten created
$~ portcullis doctor; echo "exit $?"
…
ok    leader              portcullis-… renewed its lease … ago
warn  GPU labels          label nvidia.com/gpu.memory is missing on unlabelled: their cards cannot be shared by memory
      # NVIDIA GPU feature discovery sets it. To set it by hand, in MiB of one card:
      kubectl label node unlabelled nvidia.com/gpu.memory=MIB
warn  shared nodes        half: label without taint, so its cards are not shared
      kubectl taint node half portcullis.dev/gpu-sharing=vram:NoSchedule
warn  shared nodes        pods use whole GPUs on shared nodes (default/whole on shared-1): the cards are unknown, so these nodes accept no more shares
      kubectl delete pod -n default whole
warn  scheduler names     pods wait for schedulers that have bound no pod and hold no Lease: not-installed (default/forgotten)
      # install that scheduler, or name it in --rewrite-schedulers (manifests/base/deployment.yaml), or remove
      # spec.schedulerName from the manifest; then create the pods again
ok    gated pods          no pod waits behind the gate

No failures, 4 warnings.
exit 0
$ kubectl taint node half portcullis.dev/gpu-sharing=vram:NoSchedule
node/half tainted
$ kubectl delete pod -n default whole
pod "whole" deleted from default namespace
$~ portcullis doctor | grep 'shared nodes'
ok    shared nodes        2 nodes shared by memory
"#,
    );
}

#[test]
fn after_uninstall_pods_keep_their_gate_until_it_is_removed_by_hand() {
    let Some(cluster) = cluster() else { return };
    let portcullis = start(&cluster, options());
    let namespace = cluster.namespace("left").unwrap();
    cluster.apply(&namespace, &gang("train", 3, 2)).expect_success();
    cluster.check(
        &namespace,
        "
$~ kubectl get gangs
NAME    PHASE       READY   NEEDS            WAITING FOR   POSITION   AGE
train   Gathering   2/3     …
$~ kubectl delete -k manifests/
…
",
    );
    for replica in 0..2 {
        portcullis.kill(replica);
    }
    let [unguard, free] = remedy().try_into().unwrap();
    cluster.check(
        &namespace,
        &format!(
            r#"
$ kubectl get pods
NAME      READY   STATUS            RESTARTS   AGE
train-1   0/1     SchedulingGated   0          …
train-2   0/1     SchedulingGated   0          …
$~ portcullis doctor; echo "exit $?"
ok    API server       v1.…
FAIL  installation     Portcullis is not installed: pods of gangs get no gate and are not validated
      kubectl apply -k manifests/
ok    GPU labels       GPU memory is known on 2 nodes
ok    shared nodes     1 node shared by memory
ok    scheduler names  no pod waits for an unknown scheduler
FAIL  gated pods       2 pods wait behind the gate and no leader removes it: {namespace}/train-1, {namespace}/train-2
      # Portcullis was removed. To start each pod without it:
      {unguard}
      {free}

2 failures.
exit 1
$ {unguard}
$ {free}
pod/train-1 patched
pod/train-2 patched
$~ kubectl get pods
NAME      READY   STATUS    RESTARTS   AGE
train-1   1/1     Running   0          …
train-2   1/1     Running   0          …
$~ portcullis doctor | tail -n 4
ok    scheduler names  no pod waits for an unknown scheduler
ok    gated pods       no pod waits behind the gate

1 failure.
"#
        ),
    );
}
