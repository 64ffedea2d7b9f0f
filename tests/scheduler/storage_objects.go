package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// betaLabels are the older names of the topology labels. Old volumes and old nodes have them.
var betaLabels = map[string]string{
	zone:   v1.LabelFailureDomainBetaZone,
	region: v1.LabelFailureDomainBetaRegion,
}

// addDrivers adds the CSI drivers and what runs of them on each node.
func (s *storage) addDrivers() {
	d := s.d
	driver := func(name string, capacity bool) {
		// 1.36 ignores the second field unless the gate VolumeLimitScaling is on.
		required := d.percent(50)
		s.world.csiDrivers = append(s.world.csiDrivers, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSIDriverSpec{StorageCapacity: &capacity, PreventPodSchedulingIfMissing: &required},
		})
	}
	driver(finiteDrives, true)
	if d.percent(70) {
		driver(manyDrives, false)
	}
	for _, node := range s.world.nodes {
		if d.percent(8) {
			continue
		}
		csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		for _, driver := range some(d, 75, manyDrives, finiteDrives) {
			csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, limitedDriver(d, node.Name, driver))
		}
		if d.percent(10) {
			csiNode.Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: "kubernetes.io/gce-pd"}
			csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, limitedDriver(d, node.Name, migratedDriver))
		}
		s.world.csiNodes = append(s.world.csiNodes, csiNode)
	}
}

func limitedDriver(d dice, node, driver string) storagev1.CSINodeDriver {
	result := storagev1.CSINodeDriver{Name: driver, NodeID: node, TopologyKeys: []string{zone}}
	if d.percent(75) {
		count := int32(pick(d, 0, 1, 1, 2, 2, 3, 25))
		result.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return result
}

// addClasses adds storage classes of every kind, and capacity for the driver that tracks it.
func (s *storage) addClasses() {
	d := s.d
	immediate, wait := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	class := func(name, provisioner string, mode *storagev1.VolumeBindingMode, topologies []v1.TopologySelectorTerm) {
		if d.percent(4) {
			// The claims of a class stay when a user deletes the class.
			return
		}
		s.world.storageClasses = append(s.world.storageClasses, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: mode,
			AllowedTopologies: topologies,
		})
	}
	class("immediate", manyDrives, &immediate, nil)
	class("wait", manyDrives, &wait, nil)
	class("zonal", manyDrives, &wait, topologyTerms(d))
	class("finite", finiteDrives, &wait, nil)
	class("finite-zonal", finiteDrives, &wait, topologyTerms(d))
	class("local", "kubernetes.io/no-provisioner", &wait, nil)
	class("disks", "kubernetes.io/gce-pd", &wait, nil)
	for i := range d.between(1, 5) {
		s.world.storageCapacities = append(s.world.storageCapacities, s.capacity(i))
	}
}

func topologyTerms(d dice) []v1.TopologySelectorTerm {
	var terms []v1.TopologySelectorTerm
	for range d.between(1, 2) {
		term := v1.TopologySelectorTerm{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{
			{Key: zone, Values: atLeastOne(d, []string{"z1", "z2", "z3"})},
		}}
		if d.percent(25) {
			term.MatchLabelExpressions = append(term.MatchLabelExpressions,
				v1.TopologySelectorLabelRequirement{Key: region, Values: []string{pick(d, "r1", "r2")}})
		}
		terms = append(terms, term)
	}
	return terms
}

func (s *storage) capacity(index int) *storagev1.CSIStorageCapacity {
	d := s.d
	result := &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Namespace: "c", Name: fmt.Sprintf("capacity-%d", index)},
		StorageClassName: pick(d, "finite", "finite", "finite", "finite-zonal", "wait"),
	}
	amount := func(text string) *resource.Quantity {
		value := quantity(text)
		return &value
	}
	if d.percent(90) {
		result.Capacity = amount(pick(d, "1Gi", "5Gi", "20Gi", "100Gi", "5G"))
	}
	if d.percent(25) {
		result.MaximumVolumeSize = amount(pick(d, "1Gi", "8Gi", "100Gi"))
	}
	switch n := d.IntN(100); {
	case n < 55:
		result.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{zone: pick(d, "z1", "z2", "z3")}}
	case n < 75:
		result.NodeTopology = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: hostname, Operator: metav1.LabelSelectorOpIn, Values: []string{"n0", "n1", "n2"}},
		}}
	case n < 90:
		result.NodeTopology = &metav1.LabelSelector{}
	}
	return result
}

// addStaticVolumes adds volumes of class local that no claim has yet. No two have the same size, because the smallest
// volume that fits is taken and the order of equal ones is not defined.
func (s *storage) addStaticVolumes() {
	d := s.d
	for i := range d.between(0, 8) {
		volume := s.newVolume(fmt.Sprintf("local-%d", i))
		volume.Spec.StorageClassName = "local"
		volume.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/mnt"}}
		volume.Spec.NodeAffinity = volumeAffinity(d, hostname)
		volume.Spec.Capacity = resources("storage", fmt.Sprintf("%dMi", d.between(1, 50)*1024+i))
		volume.Spec.AccessModes = some(d, 70, v1.ReadWriteOnce, v1.ReadWriteOncePod, v1.ReadWriteMany)
		mode := pick(d, v1.PersistentVolumeFilesystem, v1.PersistentVolumeFilesystem, v1.PersistentVolumeBlock)
		volume.Spec.VolumeMode = &mode
		volume.Labels = map[string]string{"speed": pick(d, "fast", "slow")}
		volume.Status.Phase = pick(d, v1.VolumeAvailable, v1.VolumeAvailable, v1.VolumeAvailable, v1.VolumeAvailable,
			v1.VolumeReleased, v1.VolumePending)
		if d.percent(6) {
			volume.Annotations = map[string]string{v1.BetaStorageClassAnnotation: "local"}
			volume.Spec.StorageClassName = pick(d, "", "wait")
		}
		switch n := d.IntN(100); {
		case n < 4:
			deleted := metav1.Unix(1700000000, 0)
			volume.DeletionTimestamp = &deleted
			volume.Finalizers = []string{"kubernetes.io/pv-protection"}
		case n < 9:
			attributes := "gold"
			volume.Spec.VolumeAttributesClassName = &attributes
		}
		s.world.volumes = append(s.world.volumes, volume)
	}
}

// newVolume returns a volume of a CSI driver with the topology that drivers and older provisioners give to volumes.
func (s *storage) newVolume(name string) *v1.PersistentVolume {
	d := s.d
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	volume.Spec.CSI = &v1.CSIPersistentVolumeSource{
		Driver: pick(d, manyDrives, manyDrives, finiteDrives), VolumeHandle: "handle-of-" + name,
	}
	switch n := d.IntN(100); {
	case n < 3:
		volume.Spec.CSI = nil
		volume.Spec.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: name}
	case n < 10:
		volume.Spec.CSI = nil
		volume.Spec.NFS = &v1.NFSVolumeSource{Server: "10.0.0.1", Path: "/"}
	}
	if d.percent(55) {
		volume.Spec.NodeAffinity = volumeAffinity(d, pick(d, hostname, zone, zone, zone, region))
	}
	// The names of these zones are not those of GCE, so a disk of GCE has no label with one.
	if volume.Spec.GCEPersistentDisk == nil && d.percent(25) {
		key := pick(d, zone, zone, zone, region)
		value := map[string]string{
			zone: pick(d, "z1", "z2", "z3", "z1__z2", "z2__z3", "z1__"), region: pick(d, "r1", "r1", "r2"),
		}[key]
		if d.percent(25) {
			key = betaLabels[key]
		}
		volume.Labels = map[string]string{key: value}
	}
	return volume
}

// volumeAffinity returns the node affinity of a volume by one label.
func volumeAffinity(d dice, key string) *v1.VolumeNodeAffinity {
	values := map[string][]string{
		hostname: {"n0", "n1", "n2", "n3"}, zone: {"z1", "z2", "z3"}, region: {"r1", "r2"},
	}[key]
	term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: key, Operator: v1.NodeSelectorOpIn, Values: atLeastOne(d, values)},
	}}
	terms := []v1.NodeSelectorTerm{term}
	if d.percent(10) {
		terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: rack, Operator: pick(d, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist)},
			{Key: zone, Operator: v1.NodeSelectorOpNotIn, Values: []string{"z1"}},
		}})
	}
	if d.percent(2) {
		// The API server accepts any one value, and the scheduler cannot read this one.
		terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: zone, Operator: v1.NodeSelectorOpGt, Values: []string{"four"}},
		}})
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: terms}}
}

// addAttachments adds attachments that no pod needs any more. They count against the limit of their node.
func (s *storage) addAttachments() {
	d := s.d
	for i, volume := range s.world.volumes {
		if volume.Spec.CSI == nil || !d.percent(12) {
			continue
		}
		name := pick(d, volume.Name, volume.Name, volume.Name, volume.Name, "gone")
		s.world.attachments = append(s.world.attachments, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("attachment-%d", i)},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: volume.Spec.CSI.Driver, NodeName: pick(d, s.world.nodes...).Name,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
			},
		})
	}
}
