package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// judgedPlugins are the filter plugins of the default profile in their order, except DynamicResources.
var judgedPlugins = []string{
	names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	names.NodeResourcesFit, names.VolumeRestrictions, names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone,
	names.PodTopologySpread, names.InterPodAffinity, names.NodeDeclaredFeatures,
}

// cluster is everything that the scheduler knows when it judges a pod.
type cluster struct {
	nodes             []*v1.Node
	namespaces        []*v1.Namespace
	pods              []*v1.Pod
	volumes           []*v1.PersistentVolume
	claims            []*v1.PersistentVolumeClaim
	storageClasses    []*storagev1.StorageClass
	csiNodes          []*storagev1.CSINode
	csiDrivers        []*storagev1.CSIDriver
	storageCapacities []*storagev1.CSIStorageCapacity
	attachments       []*storagev1.VolumeAttachment
}

// refusal is one verdict of one plugin on some nodes, or on the pod as a whole.
type refusal struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
	Nodes   []string `json:"nodes,omitempty"`
	Stage   string   `json:"stage,omitempty"`
}

// judge holds one framework for each plugin, over one cluster.
type judge struct {
	ctx        context.Context
	snapshot   *internalcache.Snapshot
	frameworks []framework.Framework
}

// nominations implements the part of the scheduling queue that filters use.
type nominations struct {
	fwk.PodNominator
	byNode map[string][]fwk.PodInfo
}

func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo { return n.byNode[node] }

func init() { metrics.Register() }

// hasEnded says whether the scheduler does not watch the pod any more.
func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// objects returns what the scheduler's informers list.
func (c *cluster) objects() []runtime.Object {
	var list []runtime.Object
	for _, pod := range c.pods {
		if !hasEnded(pod) {
			list = append(list, pod)
		}
	}
	list = appendObjects(list, c.nodes)
	list = appendObjects(list, c.namespaces)
	list = appendObjects(list, c.volumes)
	list = appendObjects(list, c.claims)
	list = appendObjects(list, c.storageClasses)
	list = appendObjects(list, c.csiNodes)
	list = appendObjects(list, c.csiDrivers)
	list = appendObjects(list, c.storageCapacities)
	return appendObjects(list, c.attachments)
}

func appendObjects[T runtime.Object](list []runtime.Object, objects []T) []runtime.Object {
	for _, object := range objects {
		list = append(list, object)
	}
	return list
}

// newJudge starts informers over the cluster, fills the scheduler's cache and takes a snapshot of it.
// The caller cancels ctx when the last pod is judged.
func newJudge(ctx context.Context, world *cluster) (*judge, error) {
	for _, pod := range world.pods {
		setUID(pod)
	}
	snapshot, err := world.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	nominated, err := world.nominations()
	if err != nil {
		return nil, err
	}
	client := fake.NewSimpleClientset(world.objects()...)
	factory := informers.NewSharedInformerFactory(client, 0)
	frameworks, err := newFrameworks(ctx,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithParallelism(1),
		frameworkruntime.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Second, ctx.Done())),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("informer of %s is not synced", informer)
		}
	}
	return &judge{ctx: ctx, snapshot: snapshot, frameworks: frameworks}, nil
}

// snapshot returns the snapshot that the scheduler takes of its cache.
func (c *cluster) snapshot(ctx context.Context) (*internalcache.Snapshot, error) {
	logger := klog.Background()
	cache := newCache(ctx)
	for _, node := range c.nodes {
		cache.AddNode(logger, node)
	}
	for _, pod := range c.pods {
		if pod.Spec.NodeName == "" || hasEnded(pod) {
			continue
		}
		if err := cache.AddPod(logger, pod); err != nil {
			return nil, err
		}
	}
	snapshot := internalcache.NewEmptySnapshot()
	return snapshot, cache.UpdateSnapshot(logger, snapshot)
}

// newCache returns an empty cache of the scheduler. New versions of Kubernetes add arguments, one for each alpha feature.
// Zero values switch these features off. The program reads how many there are, so that `raise` needs no change here.
func newCache(ctx context.Context) internalcache.Cache {
	constructor := reflect.ValueOf(internalcache.New)
	arguments := []reflect.Value{reflect.ValueOf(ctx)}
	for i := 1; i < constructor.Type().NumIn(); i++ {
		arguments = append(arguments, reflect.Zero(constructor.Type().In(i)))
	}
	return constructor.Call(arguments)[0].Interface().(internalcache.Cache)
}

// nominations returns the pods that wait for the node that the scheduler nominated.
func (c *cluster) nominations() (nominations, error) {
	byNode := map[string][]fwk.PodInfo{}
	for _, pod := range c.pods {
		node := pod.Status.NominatedNodeName
		if node == "" || pod.Spec.NodeName != "" || hasEnded(pod) {
			continue
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nominations{}, err
		}
		byNode[node] = append(byNode[node], info)
	}
	return nominations{byNode: byNode}, nil
}

// newFrameworks returns one framework for each judged plugin, with the arguments of the default profile.
func newFrameworks(ctx context.Context, options ...frameworkruntime.Option) ([]framework.Framework, error) {
	profile, err := defaultProfile()
	if err != nil {
		return nil, err
	}
	registry := plugins.NewInTreeRegistry()
	var list []framework.Framework
	for _, plugin := range judgedPlugins {
		alone := &config.KubeSchedulerProfile{
			SchedulerName: v1.DefaultSchedulerName,
			PluginConfig:  profile.PluginConfig,
			Plugins: &config.Plugins{
				QueueSort:  config.PluginSet{Enabled: []config.Plugin{{Name: names.PrioritySort}}},
				Bind:       config.PluginSet{Enabled: []config.Plugin{{Name: names.DefaultBinder}}},
				MultiPoint: config.PluginSet{Enabled: []config.Plugin{{Name: plugin, Weight: 1}}},
			},
		}
		f, err := frameworkruntime.NewFramework(ctx, registry, alone, options...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// defaultProfile returns the default profile with the arguments of its plugins.
func defaultProfile() (*config.KubeSchedulerProfile, error) {
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	return &configuration.Profiles[0], nil
}

// setUID gives the pod a UID where the table has none, because the scheduler's cache needs one.
func setUID(pod *v1.Pod) {
	if pod.UID == "" {
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	}
}

// refusals returns the verdicts of all plugins on one pod.
func (j *judge) refusals(pod *v1.Pod) ([]refusal, error) {
	setUID(pod)
	nodes, err := j.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	nodes = slices.Clone(nodes)
	sort.Slice(nodes, func(a, b int) bool { return nodes[a].Node().Name < nodes[b].Node().Name })
	list := []refusal{}
	for i, plugin := range judgedPlugins {
		list = append(list, j.refusalsOf(plugin, j.frameworks[i], pod, nodes)...)
	}
	return list, nil
}

// refusalsOf runs one plugin as the scheduler's cycle does: PreFilter, then Filter on each node that PreFilter left.
func (j *judge) refusalsOf(plugin string, f framework.Framework, pod *v1.Pod, nodes []fwk.NodeInfo) []refusal {
	state := framework.NewCycleState()
	result, status, _ := f.RunPreFilterPlugins(j.ctx, state, pod)
	if !status.IsSuccess() {
		whole := newRefusal(plugin, status)
		whole.Stage = "PreFilter"
		return []refusal{whole}
	}
	var list []refusal
	add := func(r refusal, node string) {
		for i := range list {
			same := list[i].Code == r.Code && list[i].Stage == r.Stage && slices.Equal(list[i].Reasons, r.Reasons)
			if same {
				list[i].Nodes = append(list[i].Nodes, node)
				return
			}
		}
		r.Nodes = []string{node}
		list = append(list, r)
	}
	for _, node := range nodes {
		name := node.Node().Name
		if !result.AllNodes() && !result.NodeNames.Has(name) {
			reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", []string{plugin})
			outside := newRefusal(plugin, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason))
			outside.Stage = "PreFilterResult"
			add(outside, name)
			continue
		}
		if status := f.RunFilterPluginsWithNominatedPods(j.ctx, state, pod, node); !status.IsSuccess() {
			add(newRefusal(plugin, status), name)
		}
	}
	return list
}

func newRefusal(plugin string, status *fwk.Status) refusal {
	// Some plugins collect reasons in the order of a map.
	reasons := slices.Clone(status.Reasons())
	slices.Sort(reasons)
	return refusal{Plugin: plugin, Code: status.Code().String(), Reasons: reasons}
}
