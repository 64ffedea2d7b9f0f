package main

import (
	"regexp"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// objectName is the name of an object in an error message: quoted, or with its namespace.
var objectName = regexp.MustCompile(`"[^"]*"|\b[abc]/[a-z0-9-]+`)

// groups are the tables. A case has 25 pods on average.
var groups = []group{
	{"node", 160, nodeCase},
	{"resources", 160, resourcesCase},
	{"affinity", 180, affinityCase},
	{"spread", 160, spreadCase},
	{"nominated", 60, nominatedCase},
	{"volumes", 160, volumesCase},
	{"features", 20, featuresCase},
	{"hostnames", 40, hostnamesCase},
}

// groupPlugins are the plugins that a group stresses.
var groupPlugins = map[string][]string{
	"node": {
		names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	},
	"resources": {names.NodeResourcesFit},
	"affinity":  {names.InterPodAffinity},
	"spread":    {names.PodTopologySpread},
	"volumes": {
		names.VolumeRestrictions, names.VolumeBinding, names.VolumeZone, names.NodeVolumeLimits,
	},
	"features":  {names.NodeDeclaredFeatures},
	"hostnames": {names.PodTopologySpread, names.InterPodAffinity},
	"nominated": {names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity},
}

// withoutNames replaces the names of objects in a reason, so that reasons can be counted.
func withoutNames(reason string) string {
	return objectName.ReplaceAllString(reason, "…")
}
