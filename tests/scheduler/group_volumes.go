package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// manyDrives is a CSI driver without storage capacity tracking, finiteDrives is one with it.
	manyDrives   = "many.csi.example.com"
	finiteDrives = "finite.csi.example.com"
	// migratedDriver is the driver that stands for the disks of GCE inside Kubernetes.
	migratedDriver = "pd.csi.storage.gke.io"
)

// volumesCase stresses VolumeRestrictions, VolumeBinding, VolumeZone and NodeVolumeLimits.
func volumesCase(d dice) (*cluster, []*v1.Pod) {
	s := &storage{d: d, world: &cluster{nodes: generatedNodes(d), namespaces: generatedNamespaces(d)}}
	for _, node := range s.world.nodes {
		if d.percent(10) {
			for _, key := range []string{zone, region} {
				if value, ok := node.Labels[key]; ok && d.percent(50) {
					delete(node.Labels, key)
					node.Labels[betaLabels[key]] = value
				}
			}
		}
	}
	s.addDrivers()
	s.addClasses()
	s.addStaticVolumes()
	for _, namespace := range []string{"a", "a", "a", "b"} {
		for range d.between(4, 7) {
			s.addClaim(namespace)
		}
	}
	s.reserveVolumes()
	s.world.pods = runningPods(d, s.world.nodes, d.between(0, 14), s.addVolumes)
	s.world.pods = append(s.world.pods, nominatedPods(d, s.world.nodes, pick(d, 0, 0, 0, 1, 2), s.addVolumes)...)
	for _, pod := range s.world.pods {
		s.addEphemeralClaims(pod)
	}
	s.addAttachments()
	pods := submittedPods(d, s.addVolumes)
	for _, pod := range pods {
		s.addEphemeralClaims(pod)
	}
	return s.world, pods
}

// storage generates the storage objects of one case.
type storage struct {
	d     dice
	world *cluster
	// usable are names of claims by namespace. Names without a claim are among them.
	usable map[string][]string
	count  int
}

// addVolumes gives the pod volumes: claims, generic ephemeral volumes, disks in the pod itself.
func (s *storage) addVolumes(pod *v1.Pod) {
	d := s.d
	pod.Labels = nil
	pod.Namespace = pick(d, "a", "a", "a", "b")
	pod.UID = types.UID("uid-of-" + pod.Namespace + "-" + pod.Name)
	pod.Spec.Volumes = nil
	for i := range pick(d, 1, 1, 1, 1, 2, 2, 3) {
		volume := v1.Volume{Name: fmt.Sprintf("v%d", i)}
		switch n := d.IntN(100); {
		case n < 68:
			claim := fmt.Sprintf("missing-%d", d.IntN(3))
			if d.percent(96) {
				claim = pick(d, s.usable[pod.Namespace]...)
			}
			volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: d.percent(10)}
		case n < 78:
			template := &v1.PersistentVolumeClaimTemplate{Spec: s.claimSpec()}
			volume.Ephemeral = &v1.EphemeralVolumeSource{VolumeClaimTemplate: template}
		case n < 96:
			volume.VolumeSource = disk(d)
		default:
			volume.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
	}
}

// disk returns a volume that VolumeRestrictions compares with those of other pods.
func disk(d dice) v1.VolumeSource {
	readOnly := d.percent(50)
	switch d.IntN(4) {
	case 0:
		return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{
			PDName: pick(d, "d1", "d2"), ReadOnly: readOnly,
		}}
	case 1:
		return v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{
			VolumeID: pick(d, "vol-1", "vol-2"), ReadOnly: readOnly,
		}}
	case 2:
		return v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{
			TargetPortal: "10.0.0.1:3260", IQN: pick(d, "iqn.2024-01.com.example:1", "iqn.2024-01.com.example:2"),
			Lun: int32(d.IntN(2)), ReadOnly: readOnly,
		}}
	default:
		return v1.VolumeSource{RBD: &v1.RBDVolumeSource{
			CephMonitors: pick(d, []string{"m1", "m2"}, []string{"m2", "m3"}, []string{"m3"}),
			RBDPool:      pick(d, "", "fast"), RBDImage: pick(d, "i1", "i1", "i2"), ReadOnly: readOnly,
		}}
	}
}

// addEphemeralClaims adds the claims of the generic ephemeral volumes of a pod, or claims that only look like them.
func (s *storage) addEphemeralClaims(pod *v1.Pod) {
	d := s.d
	for _, volume := range pod.Spec.Volumes {
		if volume.Ephemeral == nil || d.percent(12) {
			continue
		}
		claim := s.newClaim(pod.Namespace, pod.Name+"-"+volume.Name, volume.Ephemeral.VolumeClaimTemplate.Spec)
		controller := true
		owner := metav1.OwnerReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &controller,
		}
		switch n := d.IntN(100); {
		case n < 4:
			owner.UID = "uid-of-an-earlier-pod"
		case n < 8:
			controller = false
		}
		if d.percent(96) {
			claim.OwnerReferences = []metav1.OwnerReference{owner}
		}
		s.bindOrNot(claim)
		s.world.claims = append(s.world.claims, claim)
	}
}

// addClaim adds a claim in one of the states that claims have.
func (s *storage) addClaim(namespace string) {
	s.count++
	claim := s.newClaim(namespace, fmt.Sprintf("c%d", s.count), s.claimSpec())
	s.bindOrNot(claim)
	if s.d.percent(3) {
		// The older way to name a class.
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[v1.BetaStorageClassAnnotation] = pick(s.d, "local", "wait", "immediate")
		claim.Spec.StorageClassName = nil
	}
	if s.usable == nil {
		s.usable = map[string][]string{}
	}
	s.usable[namespace] = append(s.usable[namespace], claim.Name)
	s.world.claims = append(s.world.claims, claim)
}

func (s *storage) newClaim(namespace, name string, spec v1.PersistentVolumeClaimSpec) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + namespace + "-" + name)},
		Spec:       spec,
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
}

// claimSpec returns what a user writes into a claim.
func (s *storage) claimSpec() v1.PersistentVolumeClaimSpec {
	d := s.d
	spec := v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{pick(d, v1.ReadWriteOnce, v1.ReadWriteOnce, v1.ReadWriteOnce,
			v1.ReadWriteOncePod, v1.ReadWriteOncePod, v1.ReadWriteMany)},
		Resources: v1.VolumeResourceRequirements{
			Requests: resources("storage", pick(d, "1Gi", "5Gi", "10Gi", "40Gi", "5G")),
		},
	}
	mode := v1.PersistentVolumeFilesystem
	if d.percent(8) {
		mode = v1.PersistentVolumeBlock
	}
	spec.VolumeMode = &mode
	class := pick(d, "immediate", "wait", "wait", "wait", "zonal", "zonal", "finite", "finite", "finite", "finite-zonal",
		"local", "local", "local", "local", "no-such-class", "")
	if d.percent(3) {
		class = "disks"
	}
	if d.percent(98) {
		spec.StorageClassName = &class
	}
	if class == "local" && d.percent(25) {
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"speed": pick(d, "fast", "slow")}}
	}
	if d.percent(6) {
		attributes := "gold"
		spec.VolumeAttributesClassName = &attributes
	}
	return spec
}

// bindOrNot puts a claim into a state: bound, waiting, lost, being deleted, and the states between them.
func (s *storage) bindOrNot(claim *v1.PersistentVolumeClaim) {
	d := s.d
	switch n := d.IntN(100); {
	case n < 48:
		volume := s.newVolume("pv-of-" + claim.Namespace + "-" + claim.Name)
		volume.Spec.StorageClassName = className(claim)
		volume.Spec.AccessModes = claim.Spec.AccessModes
		volume.Spec.VolumeMode = claim.Spec.VolumeMode
		volume.Spec.Capacity = claim.Spec.Resources.Requests
		volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		volume.Status.Phase = v1.VolumeBound
		claim.Spec.VolumeName = volume.Name
		claim.Status.Phase = v1.ClaimBound
		if d.percent(94) {
			claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		}
		if d.percent(94) {
			s.world.volumes = append(s.world.volumes, volume)
		}
	case n < 50:
		claim.Spec.VolumeName = "lost"
		claim.Status.Phase = v1.ClaimLost
	case n < 53:
		// The user chose the volume, and nothing has bound it yet.
		claim.Spec.VolumeName = "local-0"
	case n < 57:
		claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": pick(d, s.world.nodes...).Name}
	}
	if d.percent(3) {
		deleted := metav1.Unix(1700000000, 0)
		claim.DeletionTimestamp = &deleted
		claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	}
}

// reserveVolumes reserves some free volumes for claims that wait. A claim has one such volume at most.
func (s *storage) reserveVolumes() {
	d := s.d
	var waiting []*v1.PersistentVolumeClaim
	for _, claim := range s.world.claims {
		if className(claim) == "local" && claim.Spec.VolumeName == "" {
			waiting = append(waiting, claim)
		}
	}
	for _, volume := range s.world.volumes {
		if volume.Spec.ClaimRef != nil || len(waiting) == 0 || !d.percent(15) {
			continue
		}
		claim := waiting[0]
		waiting = waiting[1:]
		volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name}
		switch n := d.IntN(100); {
		case n < 50:
			volume.Spec.ClaimRef.UID = claim.UID
		case n < 65:
			volume.Spec.ClaimRef.UID = "uid-of-another"
		}
	}
}

func className(claim *v1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}
