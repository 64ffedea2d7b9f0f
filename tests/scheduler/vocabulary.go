package main

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Topology keys of the generated nodes. Some nodes lack some of them, and no node has noSuchKey.
const (
	hostname  = v1.LabelHostname
	zone      = v1.LabelTopologyZone
	region    = v1.LabelTopologyRegion
	rack      = "example.com/rack"
	noSuchKey = "example.com/none"
	gpu       = "nvidia.com/gpu"
)

// dice is the random source of one case.
type dice struct{ *rand.Rand }

// newDice returns the random source of a case. It depends on nothing else, so cases can be generated in any order.
func newDice(group string, index int) dice {
	hash := fnv.New64a()
	hash.Write([]byte(group))
	return dice{rand.New(rand.NewPCG(hash.Sum64(), uint64(index)))}
}

// percent returns true with the probability of p percent.
func (d dice) percent(p int) bool { return d.IntN(100) < p }

// between returns a number from low to high, both included.
func (d dice) between(low, high int) int { return low + d.IntN(high-low+1) }

// pick returns one of the values.
func pick[T any](d dice, values ...T) T { return values[d.IntN(len(values))] }

// some returns each value with the probability of p percent.
func some[T any](d dice, p int, values ...T) []T {
	var list []T
	for _, value := range values {
		if d.percent(p) {
			list = append(list, value)
		}
	}
	return list
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// resources returns a resource list: resources("cpu", "1", "memory", "2Gi").
func resources(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = quantity(pairs[i+1])
	}
	return list
}

// namespaceNames are the namespaces of every cluster.
var namespaceNames = []string{"a", "b", "c"}

// generatedNamespaces returns the namespaces with labels, as the API server labels them.
func generatedNamespaces(d dice) []*v1.Namespace {
	var list []*v1.Namespace
	for _, name := range namespaceNames {
		labels := map[string]string{v1.LabelMetadataName: name}
		if d.percent(70) {
			labels["team"] = pick(d, "x", "y")
		}
		if d.percent(40) {
			labels["env"] = pick(d, "prod", "test")
		}
		list = append(list, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	return list
}

// generatedNodes returns 3 to 8 nodes with capacity for every pod.
func generatedNodes(d dice) []*v1.Node {
	var list []*v1.Node
	// In most clusters every node has every topology label.
	complete := d.percent(65)
	for i := range d.between(3, 8) {
		name := fmt.Sprintf("n%d", i)
		labels := map[string]string{}
		switch {
		case complete || d.percent(85):
			labels[hostname] = name
		case d.percent(50):
			labels[hostname] = "host-of-" + name
		}
		if complete || d.percent(75) {
			labels[zone] = pick(d, "z1", "z2", "z3")
		}
		if complete || d.percent(50) {
			labels[region] = pick(d, "r1", "r1", "r2")
		}
		if complete || d.percent(50) {
			labels[rack] = pick(d, "k1", "k2", "k3", "k4")
		}
		list = append(list, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status:     v1.NodeStatus{Allocatable: resources("cpu", "32", "memory", "64Gi", "pods", "110")},
		})
	}
	return list
}

// taintSome gives some nodes taints and makes some unschedulable.
func taintSome(d dice, nodes []*v1.Node, p int) {
	for _, node := range nodes {
		if d.percent(p) {
			node.Spec.Taints = some(d, 35,
				v1.Taint{Key: "dedicated", Value: pick(d, "train", "serve"), Effect: taintEffect(d)},
				v1.Taint{Key: gpu, Value: pick(d, "", "present"), Effect: taintEffect(d)},
				v1.Taint{Key: "level", Value: pick(d, "1", "5", "10"), Effect: taintEffect(d)},
				v1.Taint{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute},
				v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule},
			)
		}
		if d.percent(p / 3) {
			node.Spec.Unschedulable = true
			if d.percent(80) {
				node.Spec.Taints = append(node.Spec.Taints,
					v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
			}
		}
	}
}

func taintEffect(d dice) v1.TaintEffect {
	return pick(d, v1.TaintEffectNoSchedule, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute,
		v1.TaintEffectPreferNoSchedule)
}

// generatedTolerations returns tolerations that match some of the taints of taintSome.
func generatedTolerations(d dice) []v1.Toleration {
	var list []v1.Toleration
	for range d.between(0, 3) {
		key := pick(d, "dedicated", "dedicated", gpu, gpu, "level", v1.TaintNodeNotReady, v1.TaintNodeMemoryPressure,
			v1.TaintNodeUnschedulable, v1.TaintNodeUnschedulable)
		toleration := v1.Toleration{Key: key, Operator: v1.TolerationOpExists}
		if d.percent(50) {
			toleration.Operator = pick(d, v1.TolerationOpEqual, "")
			toleration.Value = pick(d, "train", "serve", "present", "", "5")
		}
		if key == "level" && d.percent(50) {
			toleration.Operator = pick(d, v1.TolerationOpLt, v1.TolerationOpGt)
			toleration.Value = pick(d, "0", "5", "100")
		}
		if d.percent(60) {
			toleration.Effect = pick(d, v1.TaintEffectNoSchedule, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute,
				v1.TaintEffectPreferNoSchedule)
		}
		if toleration.Effect == v1.TaintEffectNoExecute && d.percent(30) {
			seconds := int64(d.between(0, 300))
			toleration.TolerationSeconds = &seconds
		}
		list = append(list, toleration)
	}
	if d.percent(6) {
		list = append(list, v1.Toleration{Operator: v1.TolerationOpExists})
	}
	return list
}

// podLabels returns the labels that selectors of the tables look for.
func podLabels(d dice) map[string]string {
	labels := map[string]string{}
	if d.percent(92) {
		labels["app"] = pick(d, "web", "web", "train", "cache")
	}
	if d.percent(60) {
		labels["tier"] = pick(d, "front", "back")
	}
	if d.percent(50) {
		labels["rev"] = pick(d, "1", "2")
	}
	return labels
}

// selector returns a label selector over the labels of podLabels: null, empty, or with requirements.
func selector(d dice) *metav1.LabelSelector {
	switch n := d.IntN(100); {
	case n < 4:
		return nil
	case n < 10:
		return &metav1.LabelSelector{}
	case n < 60:
		app := pick(d, "web", "web", "web", "train", "train", "cache", "none")
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	case n < 70:
		return &metav1.LabelSelector{MatchLabels: map[string]string{
			"app": pick(d, "web", "train", "cache"), "tier": pick(d, "front", "back"),
		}}
	default:
		result := &metav1.LabelSelector{}
		for range d.between(1, 2) {
			result.MatchExpressions = append(result.MatchExpressions, labelRequirement(d))
		}
		return result
	}
}

func labelRequirement(d dice) metav1.LabelSelectorRequirement {
	key := pick(d, "app", "app", "tier", "rev")
	values := map[string][]string{"app": {"web", "train", "cache"}, "tier": {"front", "back"}, "rev": {"1", "2"}}[key]
	requirement := metav1.LabelSelectorRequirement{Key: key}
	switch d.IntN(4) {
	case 0:
		requirement.Operator = metav1.LabelSelectorOpExists
	case 1:
		requirement.Operator = metav1.LabelSelectorOpDoesNotExist
	case 2:
		requirement.Operator = metav1.LabelSelectorOpNotIn
		requirement.Values = []string{pick(d, values...)}
	default:
		requirement.Operator = metav1.LabelSelectorOpIn
		requirement.Values = []string{pick(d, values...)}
		if d.percent(40) {
			requirement.Values = values[:2]
		}
	}
	return requirement
}

// newPod returns a pod with one container and no requests.
func newPod(d dice, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pick(d, "a", "a", "a", "b", "c"), Labels: podLabels(d)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "m", Image: "i"}}},
	}
}

// runningPods returns pods that run on the nodes. Some are terminating, some have ended, some name a node that is
// gone. change gives each pod what the group needs.
func runningPods(d dice, nodes []*v1.Node, count int, change func(pod *v1.Pod)) []*v1.Pod {
	var list []*v1.Pod
	for i := range count {
		pod := acceptedPod(func() *v1.Pod {
			pod := newPod(d, fmt.Sprintf("p%d", i))
			pod.Spec.NodeName = pick(d, nodes...).Name
			change(pod)
			return pod
		})
		switch n := d.IntN(100); {
		case n < 10:
			deleted := metav1.Unix(1700000000, 0)
			pod.DeletionTimestamp = &deleted
		case n < 14:
			pod.Status.Phase = pick(d, v1.PodSucceeded, v1.PodFailed)
		case n < 16:
			pod.Spec.NodeName = "gone"
		}
		list = append(list, pod)
	}
	return list
}

// acceptedPod generates pods until the API server accepts one, and returns that one as the API server stores it.
func acceptedPod(generate func() *v1.Pod) *v1.Pod {
	return accepted(generate, true)
}

// submittedPods returns pods that the API server accepts, as users submit them.
func submittedPods(d dice, change func(pod *v1.Pod)) []*v1.Pod {
	var list []*v1.Pod
	for i := range d.between(16, 34) {
		list = append(list, accepted(func() *v1.Pod {
			pod := newPod(d, fmt.Sprintf("j%d", i))
			change(pod)
			return pod
		}, false))
	}
	return list
}

func accepted(generate func() *v1.Pod, stored bool) *v1.Pod {
	const maxAttempts = 1000
	var err error
	for range maxAttempts {
		pod := generate()
		var result *v1.Pod
		if result, err = storedPod(pod); err == nil {
			if stored {
				return result
			}
			return pod
		}
	}
	panic(fmt.Sprintf("the API server rejects every generated pod, the last one because: %v", err))
}

// labelled returns the labels with one more.
func labelled(labels map[string]string, key, value string) map[string]string {
	result := maps.Clone(labels)
	if result == nil {
		result = map[string]string{}
	}
	result[key] = value
	return result
}
