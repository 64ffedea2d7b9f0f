package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// nominatedCase stresses the filters beside pods that the scheduler nominated and has not bound yet.
// Nominated pods of equal or higher priority count against a node, and no pod may depend on them.
func nominatedCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	for _, node := range world.nodes {
		node.Status.Allocatable = resources(
			"cpu", pick(d, "4", "8"), "memory", "16Gi", "pods", pick(d, "110", "3"), gpu, "4")
	}
	taintSome(d, world.nodes, 15)
	mixed := func(pod *v1.Pod) {
		priority := pick(d, int32(0), 0, 10, 100)
		pod.Spec.Priority = &priority
		pod.Spec.Containers[0].Resources.Limits = resources(
			"cpu", pick(d, "0", "1", "3"), gpu, pick(d, "0", "0", "1", "3"))
		switch n := d.IntN(100); {
		case n < 30:
			pod.Spec.Affinity = podAffinity(d, 40, 60)
		case n < 55:
			pod.Spec.TopologySpreadConstraints = spreadConstraints(d)
			if d.percent(30) {
				pod.Spec.NodeSelector = map[string]string{zone: pick(d, "z1", "z2")}
			}
		case n < 75:
			addHostPorts(d, pod)
		}
	}
	world.pods = runningPods(d, world.nodes, d.between(0, 8), mixed)
	world.pods = append(world.pods, nominatedPods(d, world.nodes, d.between(1, 5), mixed)...)
	return world, submittedPods(d, mixed)
}

// nominatedPods returns pods that the scheduler nominated for a node. change gives each pod what the group needs.
func nominatedPods(d dice, nodes []*v1.Node, count int, change func(pod *v1.Pod)) []*v1.Pod {
	var list []*v1.Pod
	for i := range count {
		list = append(list, acceptedPod(func() *v1.Pod {
			pod := newPod(d, fmt.Sprintf("w%d", i))
			change(pod)
			pod.Status.NominatedNodeName = pick(d, nodes...).Name
			return pod
		}))
	}
	return list
}
