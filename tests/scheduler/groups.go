package main

import (
	"regexp"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// quotedName is a name in an error message.
var quotedName = regexp.MustCompile(`"[^"]*"`)

// groups are the tables. A case has 25 pods on average.
var groups = []group{
	{"node", 160, nodeCase},
	{"resources", 160, resourcesCase},
	{"affinity", 180, affinityCase},
	{"spread", 160, spreadCase},
	{"nominated", 60, nominatedCase},
}

// groupPlugins are the plugins that a group stresses.
var groupPlugins = map[string][]string{
	"node": {
		names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.NodeAffinity, names.NodePorts,
	},
	"resources": {names.NodeResourcesFit},
	"affinity":  {names.InterPodAffinity},
	"spread":    {names.PodTopologySpread},
	"nominated": {names.NodePorts, names.NodeResourcesFit, names.PodTopologySpread, names.InterPodAffinity},
}

// withoutNames replaces the names of objects in a reason by a placeholder, so that reasons can be counted.
func withoutNames(reason string) string {
	return quotedName.ReplaceAllString(reason, `"…"`)
}
