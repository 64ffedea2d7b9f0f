package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	podstrategy "k8s.io/kubernetes/pkg/registry/core/pod"
)

// storedPod returns the pod as the API server stores it: with defaults and with match label keys in the selectors.
// The error says why the API server rejects the pod.
//
// Two kinds of pods stay, although the API server rejects them by default: pods with tolerations by Lt and Gt, and
// pods on the network of the host in a user namespace. Their feature gates may have been on at their creation.
func storedPod(pod *v1.Pod) (*v1.Pod, error) {
	submitted := pod.DeepCopy()
	isComparison := func(t v1.Toleration) bool {
		return t.Operator == v1.TolerationOpLt || t.Operator == v1.TolerationOpGt
	}
	submitted.Spec.Tolerations = slices.DeleteFunc(submitted.Spec.Tolerations, isComparison)
	if submitted.Spec.HostNetwork {
		submitted.Spec.HostUsers = nil
	}
	legacyscheme.Scheme.Default(submitted)
	internal := &api.Pod{}
	if err := legacyscheme.Scheme.Convert(submitted, internal, nil); err != nil {
		return nil, err
	}
	ctx := context.Background()
	podstrategy.Strategy.PrepareForCreate(ctx, internal)
	if errs := podstrategy.Strategy.Validate(ctx, internal); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	stored := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, stored, nil); err != nil {
		return nil, err
	}
	// The API server sets the status and metadata below later or in another place, and the generator chose them.
	stored.Status = pod.Status
	stored.DeletionTimestamp = pod.DeletionTimestamp
	stored.UID = pod.UID
	stored.Spec.HostUsers = pod.Spec.HostUsers
	for _, toleration := range pod.Spec.Tolerations {
		if isComparison(toleration) {
			stored.Spec.Tolerations = append(stored.Spec.Tolerations, toleration)
		}
	}
	return stored, nil
}

// changedAtCreation says whether the API server changed a constraint of the pod that it stored.
func changedAtCreation(submitted, stored *v1.Pod) bool {
	return !equality.Semantic.DeepEqual(submitted.Spec.Affinity, stored.Spec.Affinity) ||
		!equality.Semantic.DeepEqual(submitted.Spec.TopologySpreadConstraints, stored.Spec.TopologySpreadConstraints)
}

// withoutNoise returns a copy of the pod without the fields that no filter plugin reads.
func withoutNoise(pod *v1.Pod) *v1.Pod {
	lean := pod.DeepCopy()
	lean.Generation = 0
	lean.Status.QOSClass = ""
	if lean.Status.Phase == v1.PodPending || lean.Status.Phase == v1.PodRunning {
		lean.Status.Phase = ""
	}
	spec := &lean.Spec
	spec.RestartPolicy = ""
	spec.TerminationGracePeriodSeconds = nil
	spec.DNSPolicy = ""
	if spec.SecurityContext != nil && equality.Semantic.DeepEqual(*spec.SecurityContext, v1.PodSecurityContext{}) {
		spec.SecurityContext = nil
	}
	spec.SchedulerName = ""
	spec.EnableServiceLinks = nil
	spec.PreemptionPolicy = nil
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Image = ""
			containers[i].ImagePullPolicy = ""
			containers[i].TerminationMessagePath = ""
			containers[i].TerminationMessagePolicy = ""
		}
	}
	return lean
}

// encode returns an object as JSON, without fields that are empty because Go cannot leave them out.
func encode(object runtime.Object) (json.RawMessage, error) {
	if pod, ok := object.(*v1.Pod); ok {
		object = withoutNoise(pod)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if status, ok := fields["status"].(map[string]any); ok {
		// The names of what a node runs, and of images that a container runs.
		delete(status, "nodeInfo")
		delete(status, "daemonEndpoints")
		for _, list := range []string{"containerStatuses", "initContainerStatuses"} {
			containers, _ := status[list].([]any)
			for _, container := range containers {
				for _, name := range []string{"image", "imageID", "lastState", "ready", "restartCount", "state"} {
					delete(container.(map[string]any), name)
				}
			}
		}
	}
	dropEmpty(fields, "status", "spec")
	if metadata, ok := fields["metadata"].(map[string]any); ok && metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	if spec, ok := fields["spec"].(map[string]any); ok {
		for _, list := range []string{"containers", "initContainers"} {
			containers, _ := spec[list].([]any)
			for _, container := range containers {
				dropEmpty(container.(map[string]any), "resources")
			}
		}
		dropEmpty(spec, "resources")
		if volumes, ok := spec["volumes"].([]any); ok {
			for _, volume := range volumes {
				dropEmptyTemplateMetadata(volume.(map[string]any))
			}
		}
	}
	return json.Marshal(fields)
}

func dropEmpty(fields map[string]any, names ...string) {
	for _, name := range names {
		if value, ok := fields[name].(map[string]any); ok && len(value) == 0 {
			delete(fields, name)
		}
	}
}

func dropEmptyTemplateMetadata(volume map[string]any) {
	ephemeral, _ := volume["ephemeral"].(map[string]any)
	template, _ := ephemeral["volumeClaimTemplate"].(map[string]any)
	metadata, _ := template["metadata"].(map[string]any)
	if metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	dropEmpty(template, "metadata")
}

// encodeAll encodes a list of objects.
func encodeAll[T runtime.Object](objects []T) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for _, object := range objects {
		text, err := encode(object)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// decodeAll decodes what encodeAll wrote.
func decodeAll[T any](list []json.RawMessage) ([]*T, error) {
	var objects []*T
	for _, text := range list {
		object := new(T)
		if err := json.Unmarshal(text, object); err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
