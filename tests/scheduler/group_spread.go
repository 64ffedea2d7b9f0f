package main

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spreadCase stresses PodTopologySpread.
func spreadCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	for _, node := range world.nodes {
		if d.percent(60) {
			node.Labels["disk"] = pick(d, "ssd", "hdd")
		}
	}
	taintSome(d, world.nodes, 25)
	world.pods = runningPods(d, world.nodes, d.between(0, 20), func(pod *v1.Pod) {
		if d.percent(60) {
			pod.Namespace, pod.Labels = "a", map[string]string{"app": "web"}
		}
		if d.percent(50) {
			// The first two nodes have more pods than the others.
			pod.Spec.NodeName = pick(d, "n0", "n1")
		}
		if d.percent(10) {
			// Constraints of running pods have no say.
			pod.Spec.TopologySpreadConstraints = spreadConstraints(d)
		}
	})
	return world, submittedPods(d, func(pod *v1.Pod) {
		if d.percent(40) {
			pod.Namespace, pod.Labels = "a", labelled(pod.Labels, "app", "web")
		}
		pod.Spec.TopologySpreadConstraints = spreadConstraints(d)
		if d.percent(25) {
			pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		}
		if d.percent(15) {
			pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{
						{Key: zone, Operator: v1.NodeSelectorOpIn, Values: some(d, 70, "z1", "z2", "z3", "z4")},
					},
				}}},
			}}
		}
		if d.percent(40) {
			pod.Spec.Tolerations = generatedTolerations(d)
		}
	})
}

func spreadConstraints(d dice) []v1.TopologySpreadConstraint {
	var list []v1.TopologySpreadConstraint
	for range pick(d, 1, 1, 1, 1, 1, 2, 3) {
		constraint := v1.TopologySpreadConstraint{
			MaxSkew:     pick(d, int32(1), 1, 1, 1, 2, 3),
			TopologyKey: topologyKey(d),
			WhenUnsatisfiable: pick(d, v1.DoNotSchedule, v1.DoNotSchedule, v1.DoNotSchedule, v1.DoNotSchedule,
				v1.DoNotSchedule, v1.DoNotSchedule, v1.ScheduleAnyway),
			LabelSelector: selector(d),
		}
		if d.percent(45) {
			constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		}
		if constraint.WhenUnsatisfiable == v1.DoNotSchedule && d.percent(30) {
			domains := int32(d.between(1, 5))
			constraint.MinDomains = &domains
		}
		if d.percent(35) {
			policy := pick(d, v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
			constraint.NodeAffinityPolicy = &policy
		}
		if d.percent(35) {
			policy := pick(d, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore)
			constraint.NodeTaintsPolicy = &policy
		}
		if constraint.LabelSelector != nil && d.percent(20) {
			constraint.MatchLabelKeys = some(d, 60, "rev", "tier", "none")
		}
		list = append(list, constraint)
	}
	return list
}
