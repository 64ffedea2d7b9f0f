package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resourcesCase stresses NodeResourcesFit.
func resourcesCase(d dice) (*cluster, []*v1.Pod) {
	world := &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}
	for _, node := range world.nodes {
		node.Labels = map[string]string{hostname: node.Name}
		node.Status.Allocatable = allocatable(d)
	}
	world.pods = runningPods(d, world.nodes, d.between(4, 24), func(pod *v1.Pod) {
		pod.Labels = nil
		addRequests(d, pod, 3)
	})
	for _, pod := range world.pods {
		if d.percent(20) {
			resize(d, pod)
		}
	}
	return world, submittedPods(d, func(pod *v1.Pod) {
		pod.Labels = nil
		addRequests(d, pod, pick(d, 1, 2, 3))
	})
}

func allocatable(d dice) v1.ResourceList {
	list := resources(
		"cpu", pick(d, "2", "4", "7910m", "8", "16"),
		"memory", pick(d, "4Gi", "8Gi", "16Gi", "15998000Ki"),
		"pods", pick(d, "110", "110", "110", "110", "110", "110", "110", "4", "3", "2"),
	)
	for _, name := range some(d, 80, "ephemeral-storage", gpu, "example.com/nic", "hugepages-2Mi") {
		switch name {
		case "ephemeral-storage":
			list[v1.ResourceEphemeralStorage] = quantity(pick(d, "10Gi", "20Gi", "9500M"))
		case gpu:
			list[gpu] = quantity(pick(d, "0", "4", "4", "8", "8"))
		case "hugepages-2Mi":
			list["hugepages-2Mi"] = quantity(pick(d, "512Mi", "1Gi", "2Gi", "0"))
		default:
			list[v1.ResourceName(name)] = quantity(pick(d, "1", "4", "16"))
		}
	}
	if d.percent(2) {
		list[pick(d, v1.ResourceCPU, v1.ResourcePods)] = quantity("0")
	}
	if d.percent(2) {
		delete(list, v1.ResourcePods)
	}
	return list
}

// addRequests gives the pod requests in every way that a pod can have them. A larger size asks for more.
func addRequests(d dice, pod *v1.Pod, size int) {
	pod.Spec.Containers[0].Resources = containerResources(d, size)
	for i := range pick(d, 0, 0, 0, 0, 1, 2) {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("m%d", i+1), Image: "i", Resources: containerResources(d, size),
		})
	}
	for i := range pick(d, 0, 0, 0, 0, 1, 1, 2, 3) {
		container := v1.Container{Name: fmt.Sprintf("s%d", i), Image: "i", Resources: containerResources(d, size)}
		if d.percent(50) {
			always := v1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
	}
	if d.percent(12) {
		pod.Spec.Overhead = resources("cpu", pick(d, "100m", "1"), "memory", pick(d, "64Mi", "1Gi"))
	}
	if d.percent(18) {
		pod.Spec.Resources = &v1.ResourceRequirements{}
		pod.Spec.Resources.Requests = podLevelList(d, size)
		if d.percent(40) {
			pod.Spec.Resources.Limits = podLevelList(d, size*2)
		}
	}
}

func podLevelList(d dice, size int) v1.ResourceList {
	list := v1.ResourceList{}
	for _, name := range some(d, 65, "cpu", "memory") {
		list[v1.ResourceName(name)] = amount(d, name, size)
	}
	if d.percent(8) {
		list["hugepages-2Mi"] = amount(d, "hugepages-2Mi", size)
	}
	return list
}

// containerResources returns requests, limits or both. Where only a limit stands, the API server copies it.
func containerResources(d dice, size int) v1.ResourceRequirements {
	var result v1.ResourceRequirements
	set := func(list *v1.ResourceList, name string, value string) {
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[v1.ResourceName(name)] = quantity(value)
	}
	for _, name := range some(d, 40, "cpu", "cpu", "memory") {
		value := amount(d, name, size)
		if d.percent(75) {
			set(&result.Requests, name, value.String())
		} else {
			set(&result.Limits, name, value.String())
		}
	}
	if d.percent(10) {
		value := amount(d, "ephemeral-storage", size)
		set(&result.Requests, "ephemeral-storage", value.String())
	}
	for _, name := range some(d, 9, gpu, gpu, "example.com/nic", "hugepages-2Mi") {
		// Extended resources and huge pages cannot be overcommitted: their request is their limit.
		value := amount(d, name, size)
		set(&result.Limits, name, value.String())
		if d.percent(50) {
			set(&result.Requests, name, value.String())
		}
		if name == "hugepages-2Mi" && result.Requests.Cpu().IsZero() {
			set(&result.Requests, "cpu", "100m")
		}
	}
	return result
}

// amount returns a quantity in the notations that users write.
func amount(d dice, name string, size int) resource.Quantity {
	var text string
	switch name {
	case "cpu":
		text = pick(d, "0", "100m", "250m", "0.5", "1", "1.5", "0.1005", fmt.Sprintf("%d", d.between(1, size)),
			fmt.Sprintf("%dm", d.between(1, size*1000)))
	case "memory":
		text = pick(d, "0", "64Mi", "128974848", "129e6", "0.5Gi", fmt.Sprintf("%dGi", d.between(1, size)),
			fmt.Sprintf("%dMi", d.between(1, size*1024)), fmt.Sprintf("%dM", d.between(1, size*1000)))
	case "ephemeral-storage":
		text = pick(d, "0", "1Gi", "4Gi", fmt.Sprintf("%dG", d.between(1, size*2)))
	case "hugepages-2Mi":
		text = pick(d, "2Mi", "128Mi", "512Mi", "1Gi")
	default:
		text = pick(d, "0", "1", "1", "2", fmt.Sprint(d.between(1, size)))
	}
	return quantity(text)
}

// resize puts the pod into a state of a resize in place: what the kubelet allocated differs from the spec.
func resize(d dice, pod *v1.Pod) {
	if pod.Status.Phase != "" {
		return
	}
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, resizedContainer(d, container.Name))
	}
	for _, container := range pod.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, resizedContainer(d, container.Name))
	}
	if pod.Spec.Resources != nil && d.percent(70) {
		if d.percent(80) {
			pod.Status.AllocatedResources = resources("cpu", pick(d, "1", "4"), "memory", pick(d, "1Gi", "4Gi"))
		}
		pod.Status.Resources = &v1.ResourceRequirements{
			Requests: resources("cpu", pick(d, "500m", "5"), "memory", pick(d, "512Mi", "5Gi")),
		}
	}
	if d.percent(60) {
		reason := pick(d, v1.PodReasonInfeasible, v1.PodReasonDeferred)
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: reason}}
	}
}

func resizedContainer(d dice, name string) v1.ContainerStatus {
	status := v1.ContainerStatus{Name: name}
	if d.percent(80) {
		status.AllocatedResources = resources("cpu", pick(d, "100m", "1", "3"), "memory", pick(d, "64Mi", "2Gi"))
	}
	if d.percent(60) {
		status.Resources = &v1.ResourceRequirements{
			Requests: resources("cpu", pick(d, "200m", "2"), "memory", pick(d, "32Mi", "3Gi")),
		}
	}
	return status
}
