package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
)

// reasonCount counts where a plugin gave a reason.
type reasonCount struct {
	plugin, code, reason string
	pods, verdicts       int
}

func reasonsPath(directory string) string { return filepath.Join(directory, "reasons.md") }

// reasonsPage returns a Markdown page that says how often each reason occurs in the committed tables, and how many
// pods each plugin refuses on no, some or all nodes.
func reasonsPage(directory string) (string, error) {
	counts := map[[3]string]*reasonCount{}
	shares := map[string]*[3]int{}
	pods, clusters := 0, 0
	for _, g := range groups {
		lines, err := readTable(g, directory)
		if err != nil {
			return "", err
		}
		for _, line := range lines {
			var c testCase
			if err := json.Unmarshal(line, &c); err != nil {
				return "", err
			}
			clusters++
			pods += len(c.Judged)
			for _, judged := range c.Judged {
				countReasons(judged, len(c.Nodes), counts)
				countShares(g.name, judged, len(c.Nodes), shares)
			}
		}
	}
	var page strings.Builder
	fmt.Fprintf(&page, "# What the tables hold\n\n`go run . write` in `tests/scheduler` writes this page. ")
	fmt.Fprintf(&page, "Kubernetes %s,\n%d clusters, %d pods.\n", kubernetesVersion(), clusters, pods)
	fmt.Fprintf(&page, "\n| table | plugin | pods accepted on all nodes | on some | on none |\n|---|---|---|---|---|\n")
	var names []string
	for name := range shares {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		s := shares[name]
		fmt.Fprintf(&page, "| %s | %d | %d | %d |\n", name, s[0], s[1], s[2])
	}
	var rows []*reasonCount
	for _, row := range counts {
		rows = append(rows, row)
	}
	sort.Slice(rows, func(a, b int) bool {
		if rows[a].plugin != rows[b].plugin {
			return rows[a].plugin < rows[b].plugin
		}
		return rows[a].reason+rows[a].code < rows[b].reason+rows[b].code
	})
	fmt.Fprintf(&page, "\nPods, and pairs of a pod and a node, with each reason. `…` stands for a name.\n")
	fmt.Fprintf(&page, "\n| plugin | reason | code | pods | pairs |\n|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&page, "| %s | `%s` | %s | %d | %d |\n", row.plugin, row.reason, row.code, row.pods, row.verdicts)
	}
	return page.String(), nil
}

// kubernetesVersion returns the version of the module that the plugins are from.
func kubernetesVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "k8s.io/kubernetes" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "of an unknown version"
}

func countReasons(judged judgedPod, nodes int, counts map[[3]string]*reasonCount) {
	for _, r := range judged.Refusals {
		for _, reason := range r.Reasons {
			reason = withoutNames(reason)
			key := [3]string{r.Plugin, r.Code, reason}
			if counts[key] == nil {
				counts[key] = &reasonCount{plugin: r.Plugin, code: r.Code, reason: reason}
			}
			counts[key].pods++
			if r.Stage == "PreFilter" {
				counts[key].verdicts += nodes
			} else {
				counts[key].verdicts += len(r.Nodes)
			}
		}
	}
}

func countShares(group string, judged judgedPod, nodes int, shares map[string]*[3]int) {
	refused := map[string]int{}
	for _, r := range judged.Refusals {
		if r.Stage == "PreFilter" {
			refused[r.Plugin] = nodes
		} else {
			refused[r.Plugin] += len(r.Nodes)
		}
	}
	for _, plugin := range groupPlugins[group] {
		key := group + " | " + plugin
		if shares[key] == nil {
			shares[key] = &[3]int{}
		}
		switch refused[plugin] {
		case 0:
			shares[key][0]++
		case nodes:
			shares[key][2]++
		default:
			shares[key][1]++
		}
	}
}
