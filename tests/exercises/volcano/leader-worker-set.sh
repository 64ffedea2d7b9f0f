#!/bin/sh
# Stands in for the controller of LeaderWorkerSet 0.10 with the provider `volcano`, which does not run in the
# tests. Creates a set NAME of one replica: a leader and three workers with the given millicores of CPU and
# MiB each. It creates, in the controller's order: a StatefulSet for the leader; then its PodGroup, which the
# leader owns, and a StatefulSet for the workers. The Kubernetes controllers create the pods. The templates
# contain the fields that the webhook of LeaderWorkerSet would add.
# With LeaderReady as the fourth argument it acts as startupPolicy: LeaderReady does. It creates the set
# itself, and a PodGroup with one member and the resources of all. A second call that ends in `workers`
# creates the StatefulSet for the workers, after the leader is Ready.
set -eu
name=$1 cpu=$2 memory=$3 policy=${4:-LeaderCreated} part=${5:-leader}
here=$(dirname "$0")
least=4
revision=c4864947c
group=$name-0-$revision
set=leaderworkerset.sigs.k8s.io

common="$set/name: $name
        $set/group-index: '0'
        $set/group-key: 3026934fa959105a39223221cf76941a46fb01bb
        $set/template-revision-hash: $revision"
containers="- name: main
        image: registry.k8s.io/pause:3.10
        resources: {requests: {cpu: ${cpu}m, memory: ${memory}Mi}}"

if [ "$policy" = LeaderReady ] && [ "$part" = leader ]; then
    least=1
    # As an administrator does long before: the engine looks for kinds that were not there every five seconds.
    kubectl get crd leaderworkersets.leaderworkerset.x-k8s.io >/dev/null 2>&1 || {
        kubectl apply -f "$here/leaderworkersets.yaml" >/dev/null
        sleep 7
    }
    kubectl apply -n gang-demo -f - <<Y
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: $name}
spec:
  replicas: 1
  startupPolicy: LeaderReady
  leaderWorkerTemplate:
    size: 4
    workerTemplate:
      spec:
        containers:
        $(echo "$containers" | sed 's/^/  /;1s/^ *//')
Y
fi

if [ "$part" = leader ]; then
kubectl apply -n gang-demo -f - <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: $name, labels: {$set/name: $name, $set/template-revision-hash: $revision}}
spec:
  serviceName: $name
  podManagementPolicy: Parallel
  replicas: 1
  selector: {matchLabels: {$set/name: $name, $set/worker-index: '0'}}
  template:
    metadata:
      labels:
        $common
        $set/worker-index: '0'
      annotations:
        $set/size: '4'
        scheduling.k8s.io/group-name: $group
    spec:
      containers:
      $containers
Y
fi

kubectl wait --for=create "pod/$name-0" -n gang-demo --timeout=30s >/dev/null
uid=$(kubectl get pod "$name-0" -n gang-demo -o jsonpath='{.metadata.uid}')
owner="{apiVersion: v1, kind: Pod, name: $name-0, uid: $uid, controller: true, blockOwnerDeletion: true}"

if [ "$part" = leader ]; then
kubectl apply -n gang-demo -f - <<Y
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: $group
  labels: {$set/name: $name, $set/group-index: '0', $set/template-revision-hash: $revision}
  ownerReferences: [$owner]
spec:
  minMember: $least
  minResources: {cpu: $((4 * cpu))m, memory: $((4 * memory))Mi}
  queue: default
Y
fi
if [ "$policy" = LeaderReady ] && [ "$part" = leader ]; then
    exit 0
fi
if [ "$policy" = LeaderReady ]; then
    kubectl wait --for=condition=Ready "pod/$name-0" -n gang-demo --timeout=30s >/dev/null
fi

kubectl apply -n gang-demo -f - <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: $name-0
  labels: {$set/name: $name, $set/group-index: '0', $set/template-revision-hash: $revision}
  ownerReferences: [$owner]
spec:
  serviceName: $name
  podManagementPolicy: Parallel
  replicas: 3
  ordinals: {start: 1}
  selector: {matchLabels: {$set/name: $name, $set/group-index: '0', role: worker}}
  template:
    metadata:
      labels:
        $common
        role: worker
      annotations:
        $set/leader-name: $name-0
        $set/size: '4'
        scheduling.k8s.io/group-name: $group
    spec:
      containers:
      $containers
Y
