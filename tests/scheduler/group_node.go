package main

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// nodeCase stresses NodeName, NodeUnschedulable, TaintToleration, NodeAffinity and NodePorts.
func nodeCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	for _, node := range world.nodes {
		labelNode(d, node)
	}
	taintSome(d, world.nodes, 50)
	world.pods = runningPods(d, world.nodes, d.between(2, 14), func(pod *v1.Pod) {
		pod.Labels = nil
		if d.percent(85) {
			addHostPorts(d, pod)
		}
	})
	return world, submittedPods(d, func(pod *v1.Pod) {
		pod.Labels = nil
		// Most clusters have taints, so most pods need tolerations for the other plugins to have a say.
		pod.Spec.Tolerations = generatedTolerations(d)
		switch n := d.IntN(100); {
		case n < 5:
		case n < 40:
			addNodeAffinity(d, pod)
		case n < 48:
			pod.Spec.NodeSelector = nodeSelector(d)
		case n < 54:
			addNodeAffinity(d, pod)
			pod.Spec.NodeSelector = nodeSelector(d)
		case n < 62:
			// A pod of a DaemonSet.
			pod.Spec.Affinity = pinned(pick(d, world.nodes...).Name)
		case n < 64:
			// Fields that contradict each other.
			affinity := pinned("n0")
			term := &affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
			term.MatchFields = append(term.MatchFields, v1.NodeSelectorRequirement{
				Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n1"},
			})
			pod.Spec.Affinity = affinity
		case n < 97:
			addHostPorts(d, pod)
		default:
			pod.Spec.NodeName = pick(d, pick(d, world.nodes...).Name, "gone")
		}
	})
}

func labelNode(d dice, node *v1.Node) {
	for _, label := range some(d, 60, "disk", "gpus", "pool", "odd") {
		switch label {
		case "disk":
			node.Labels[label] = pick(d, "ssd", "hdd", "")
		case "gpus":
			node.Labels[label] = strconv.Itoa(d.between(0, 9))
		case "pool":
			node.Labels[label] = pick(d, "train", "serve")
		case "odd":
			// What Gt and Lt cannot read, or read in their own way.
			node.Labels[label] = pick(d, "x", "07", "1.5", "9223372036854775808", "9223372036854775807", "-3")
		}
	}
}

func addNodeAffinity(d dice, pod *v1.Pod) {
	var terms []v1.NodeSelectorTerm
	for range pick(d, 1, 1, 1, 2, 2, 3) {
		terms = append(terms, nodeSelectorTerm(d))
	}
	affinity := &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
	}
	if d.percent(8) {
		// A preference has no say in a filter.
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{
			{Weight: 10, Preference: v1.NodeSelectorTerm{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: v1.NodeSelectorOpDoesNotExist}},
			}},
		}
		if d.percent(40) {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		}
	}
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: affinity}
}

// nodeSelectorTerm returns a term with expressions, fields, both or nothing. A term with nothing matches no node.
func nodeSelectorTerm(d dice) v1.NodeSelectorTerm {
	var term v1.NodeSelectorTerm
	kind := d.IntN(100)
	if kind < 80 {
		for range pick(d, 1, 1, 1, 2, 2, 3) {
			term.MatchExpressions = append(term.MatchExpressions, nodeRequirement(d))
		}
	}
	if kind >= 65 && kind < 92 {
		for range pick(d, 1, 1, 1, 1, 2) {
			term.MatchFields = append(term.MatchFields, v1.NodeSelectorRequirement{
				Key:      "metadata.name",
				Operator: pick(d, v1.NodeSelectorOpIn, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn),
				Values:   []string{fmt.Sprintf("n%d", d.IntN(5))},
			})
		}
	}
	return term
}

func nodeRequirement(d dice) v1.NodeSelectorRequirement {
	key := pick(d, "disk", "gpus", "gpus", "pool", "odd", zone, hostname)
	requirement := v1.NodeSelectorRequirement{Key: key}
	values := map[string][]string{
		"disk": {"ssd", "hdd", ""}, "gpus": {"1", "4", "8"}, "pool": {"train", "serve"}, "odd": {"x", "07", "-3"},
		zone: {"z1", "z2", "z3"}, hostname: {"n0", "n1", "n2", "n3"},
	}[key]
	switch n := d.IntN(100); {
	case (key == "gpus" || key == "odd") && n < 60:
		requirement.Operator = pick(d, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)
		requirement.Values = []string{pick(d, "0", "3", "4", "5", "9", "-4", "9223372036854775806")}
		if d.percent(10) {
			// The API server accepts any one value.
			requirement.Values = []string{pick(d, "four", "1.5", "9223372036854775808")}
		}
	case n < 50:
		requirement.Operator = v1.NodeSelectorOpIn
		requirement.Values = atLeastOne(d, values)
	case n < 70:
		requirement.Operator = v1.NodeSelectorOpNotIn
		requirement.Values = atLeastOne(d, values)
	case n < 85:
		requirement.Operator = v1.NodeSelectorOpExists
	default:
		requirement.Operator = v1.NodeSelectorOpDoesNotExist
	}
	return requirement
}

func atLeastOne(d dice, values []string) []string {
	if list := some(d, 50, values...); len(list) > 0 {
		return list
	}
	return []string{pick(d, values...)}
}

func nodeSelector(d dice) map[string]string {
	result := map[string]string{}
	for _, key := range atLeastOne(d, []string{"disk", "pool", zone}) {
		switch key {
		case "disk":
			result[key] = pick(d, "ssd", "hdd", "")
		case "pool":
			result[key] = pick(d, "train", "serve")
		default:
			result[key] = pick(d, "z1", "z2")
		}
	}
	return result
}

// pinned returns the affinity that the DaemonSet controller gives the pod of a node.
func pinned(node string) *v1.Affinity {
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}},
			},
		}}},
	}}
}

// addHostPorts gives the pod ports of its node, or ports that are only its own.
func addHostPorts(d dice, pod *v1.Pod) {
	for range pick(d, 1, 1, 2, 3) {
		port := v1.ContainerPort{
			ContainerPort: pick(d, int32(80), 443, 8080),
			Protocol:      pick(d, "", v1.ProtocolTCP, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP),
		}
		if d.percent(85) {
			port.HostPort = pick(d, int32(80), 80, 443, 9000)
			port.HostIP = pick(d, "", "", "", "0.0.0.0", "127.0.0.1", "127.0.0.1", "10.0.0.1", "::", "::1")
		}
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, port)
	}
	if d.percent(12) {
		// The API server sets the host port of every port to its container port.
		pod.Spec.HostNetwork = true
		for i := range pod.Spec.Containers[0].Ports {
			port := &pod.Spec.Containers[0].Ports[i]
			port.HostPort = pick(d, 0, port.ContainerPort)
		}
	}
	if d.percent(12) {
		container := v1.Container{Name: "s", Image: "i", Ports: pod.Spec.Containers[0].Ports}
		if d.percent(60) {
			always := v1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
		}
		pod.Spec.Containers[0].Ports = nil
		pod.Spec.InitContainers = []v1.Container{container}
	}
}
