#!/bin/sh
# Prints pods NAME... of CPU and MEMORY, with a line that names their gang, for `kubectl apply -f -`:
#
#   pods.sh 500m 512Mi 'schedulingGroup: {podGroupName: training}' master worker-1 worker-2
cpu=$1 memory=$2 member=$3
shift 3
for name in "$@"; do
  cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: $name}
spec:
  $member
  containers:
    - name: main
      image: registry.k8s.io/pause:3.10
      resources: {requests: {cpu: $cpu, memory: $memory}}
Y
done
