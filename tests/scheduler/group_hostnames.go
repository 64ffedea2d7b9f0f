package main

import (
	v1 "k8s.io/api/core/v1"
)

// hostnamesCase stresses topology by hostname where the label does not name its node: two nodes share a value, a node
// has the name of another one, a node has none. A hostname is a domain like any other, and no shortcut to a node.
func hostnamesCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	for _, node := range world.nodes {
		switch n := d.IntN(100); {
		case n < 45:
			node.Labels[hostname] = pick(d, "h1", "h2")
		case n < 60:
			node.Labels[hostname] = pick(d, world.nodes...).Name
		case n < 70:
			delete(node.Labels, hostname)
		}
	}
	byHostname := func(pod *v1.Pod) {
		if d.percent(50) {
			pod.Spec.Affinity = podAffinity(d, 50, 50)
			forEachRequiredTerm(pod.Spec.Affinity, func(term *v1.PodAffinityTerm) {
				if d.percent(80) {
					term.TopologyKey = hostname
				}
			})
		}
	}
	world.pods = runningPods(d, world.nodes, d.between(2, 14), byHostname)
	world.pods = append(world.pods, nominatedPods(d, world.nodes, d.between(0, 2), byHostname)...)
	return world, submittedPods(d, func(pod *v1.Pod) {
		byHostname(pod)
		if d.percent(40) {
			pod.Spec.TopologySpreadConstraints = spreadConstraints(d)
			pod.Spec.TopologySpreadConstraints[0].TopologyKey = hostname
		}
	})
}

func forEachRequiredTerm(affinity *v1.Affinity, change func(term *v1.PodAffinityTerm)) {
	if affinity == nil {
		return
	}
	if affinity.PodAffinity != nil {
		terms := affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range terms {
			change(&terms[i])
		}
	}
	if affinity.PodAntiAffinity != nil {
		terms := affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range terms {
			change(&terms[i])
		}
	}
}
