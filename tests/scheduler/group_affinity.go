package main

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// affinityCase stresses InterPodAffinity: both directions, namespaces, label keys, the first pod of a series.
func affinityCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	// The rule about the first pod of a series needs clusters without a match, so some clusters have few pods.
	world.pods = runningPods(d, world.nodes, pick(d, d.between(0, 4), d.between(6, 20)), func(pod *v1.Pod) {
		pod.Spec.Affinity = podAffinity(d, 10, 24)
	})
	return world, submittedPods(d, func(pod *v1.Pod) {
		switch n := d.IntN(100); {
		case n < 14:
		case n < 50:
			pod.Spec.Affinity = podAffinity(d, 100, 0)
		case n < 86:
			pod.Spec.Affinity = podAffinity(d, 0, 100)
		default:
			pod.Spec.Affinity = podAffinity(d, 100, 100)
		}
		if d.percent(12) {
			// A series that has affinity to itself.
			pod.Labels = labelled(pod.Labels, "app", "solo")
			pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: selfTerms(d, pod),
			}}
		}
	})
}

// podAffinity returns required affinity and anti-affinity, each with a probability in percent.
func podAffinity(d dice, affinity, antiAffinity int) *v1.Affinity {
	result := &v1.Affinity{}
	if d.percent(affinity) {
		result.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinityTerms(d)}
	}
	if d.percent(antiAffinity) {
		result.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinityTerms(d)}
	}
	if d.percent(5) {
		// A preference has no say in a filter.
		preferred := []v1.WeightedPodAffinityTerm{{Weight: 10, PodAffinityTerm: affinityTerm(d)}}
		if result.PodAntiAffinity == nil {
			result.PodAntiAffinity = &v1.PodAntiAffinity{}
		}
		result.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = preferred
	}
	if result.PodAffinity == nil && result.PodAntiAffinity == nil {
		return nil
	}
	return result
}

func affinityTerms(d dice) []v1.PodAffinityTerm {
	var list []v1.PodAffinityTerm
	for range pick(d, 1, 1, 1, 1, 1, 2, 3) {
		list = append(list, affinityTerm(d))
	}
	return list
}

func affinityTerm(d dice) v1.PodAffinityTerm {
	term := v1.PodAffinityTerm{TopologyKey: topologyKey(d), LabelSelector: selector(d)}
	switch n := d.IntN(100); {
	case n < 55:
	case n < 70:
		term.Namespaces = some(d, 50, "a", "b", "c", "gone")
	case n < 90:
		term.NamespaceSelector = namespaceSelector(d)
	default:
		term.Namespaces = some(d, 50, "a", "b")
		term.NamespaceSelector = namespaceSelector(d)
	}
	if term.LabelSelector != nil && d.percent(18) {
		if keys := some(d, 50, "rev", "tier", "none"); d.percent(60) {
			term.MatchLabelKeys = keys
		} else {
			term.MismatchLabelKeys = keys
		}
		if d.percent(20) {
			term.MatchLabelKeys, term.MismatchLabelKeys = []string{"rev"}, []string{"tier"}
		}
	}
	return term
}

func topologyKey(d dice) string {
	if d.percent(3) {
		return noSuchKey
	}
	return pick(d, hostname, hostname, hostname, zone, zone, zone, zone, rack, rack, region, region)
}

func namespaceSelector(d dice) *metav1.LabelSelector {
	switch d.IntN(5) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(d, "x", "y", "z")}}
	case 2:
		return &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: pick(d, "a", "b", "c")}}
	case 3:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "env", Operator: pick(d, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)},
		}}
	default:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{"x"}},
		}}
	}
}

// selfTerms returns affinity terms that the pod itself matches, and sometimes one that it does not match.
func selfTerms(d dice, pod *v1.Pod) []v1.PodAffinityTerm {
	self := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "solo"}}
	terms := []v1.PodAffinityTerm{{TopologyKey: topologyKey(d), LabelSelector: self}}
	if d.percent(30) {
		terms = append(terms, v1.PodAffinityTerm{TopologyKey: topologyKey(d), LabelSelector: self})
	}
	switch n := d.IntN(100); {
	case n < 20:
		terms[0].Namespaces = []string{pick(d, namespaceNames...)}
	case n < 35:
		terms[0].NamespaceSelector = namespaceSelector(d)
	case n < 45:
		terms = append(terms, affinityTerm(d))
	case n < 55:
		terms[0].MatchLabelKeys = []string{"rev"}
	case n < 65:
		terms[0].MismatchLabelKeys = []string{"rev"}
	}
	return terms
}
