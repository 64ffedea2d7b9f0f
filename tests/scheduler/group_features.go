package main

import (
	v1 "k8s.io/api/core/v1"
)

// featuresCase stresses NodeDeclaredFeatures.
func featuresCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	for _, node := range world.nodes {
		node.Status.DeclaredFeatures = some(d, 60,
			"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "NoSuchFeature",
			"RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport",
		)
	}
	return world, submittedPods(d, func(pod *v1.Pod) {
		pod.Labels = nil
		pod.Spec.HostNetwork = d.percent(50)
		if d.percent(60) {
			hostUsers := d.percent(30)
			pod.Spec.HostUsers = &hostUsers
		}
		if d.percent(35) {
			pod.Spec.Containers = append(pod.Spec.Containers, withRestartRules(d, "m1"))
		}
		if d.percent(20) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, withRestartRules(d, "s"))
		}
	})
}

// withRestartRules returns a container that restarts alone, or all containers with it.
func withRestartRules(d dice, name string) v1.Container {
	policy := v1.ContainerRestartPolicyNever
	return v1.Container{
		Name: name, Image: "i", RestartPolicy: &policy,
		RestartPolicyRules: []v1.ContainerRestartRule{{
			Action: pick(d, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers),
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
			},
		}},
	}
}
