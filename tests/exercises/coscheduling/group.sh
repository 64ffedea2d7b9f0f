#!/bin/sh
# Prints a group NAME of COUNT pods with GPUS GPUs each, for `kubectl apply -f -`: a PodGroup and a parallel
# StatefulSet.
name=$1 count=$2 gpus=$3
cat <<Y
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: $name, namespace: ml-training}
spec:
  minMember: $count
  minResources: {nvidia.com/gpu: "$((count * gpus))"}
  scheduleTimeoutSeconds: 300
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: $name, namespace: ml-training}
spec:
  serviceName: $name
  podManagementPolicy: Parallel
  replicas: $count
  selector: {matchLabels: {app: $name}}
  template:
    metadata:
      labels: {app: $name, pod-group.scheduling.sigs.k8s.io/name: $name}
    spec:
      containers:
        - name: train
          image: pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
          resources:
            requests: {cpu: "1", memory: 1Gi, nvidia.com/gpu: "$gpus"}
            limits: {nvidia.com/gpu: "$gpus"}
Y
