package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"text/tabwriter"
)

// maxPrintedDifferences bounds what check prints for one table.
const maxPrintedDifferences = 20

// checkTables generates every table again and compares it with the committed one.
// The compressed bytes may differ between versions of Go, and the lines may not.
func checkTables(directory string) error {
	differences := 0
	for _, g := range groups {
		want, err := readTable(g, directory)
		if err != nil {
			return err
		}
		got, err := g.table()
		if err != nil {
			return err
		}
		if len(got) != len(want) {
			fmt.Printf("%s: %d cases are committed, and %d are generated\n", g.name, len(want), len(got))
			differences++
			continue
		}
		inTable := 0
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				if inTable++; inTable <= maxPrintedDifferences {
					printDifference(want[i], got[i])
				}
			}
		}
		fmt.Printf("%s: %d cases, %d differ\n", g.name, len(got), inTable)
		differences += inTable
	}
	if differences > 0 {
		return fmt.Errorf("the tables in %s differ from what the plugins say: run `go run . write` and review the change",
			directory)
	}
	return nil
}

// printDifference prints the pods of a case whose verdicts changed.
func printDifference(committed, generated []byte) {
	var before, after testCase
	if json.Unmarshal(committed, &before) != nil || json.Unmarshal(generated, &after) != nil {
		return
	}
	if len(before.Judged) != len(after.Judged) {
		fmt.Printf("%s: other pods\n", after.Case)
		return
	}
	verdicts := 0
	for i := range before.Judged {
		old, _ := json.Marshal(before.Judged[i].Refusals)
		new, _ := json.Marshal(after.Judged[i].Refusals)
		if !bytes.Equal(old, new) {
			verdicts++
			fmt.Printf("%s: pod %s\n  committed: %s\n  generated: %s\n", after.Case, after.Judged[i].Pod, old, new)
		}
	}
	if verdicts == 0 {
		fmt.Printf("%s: same verdicts, other objects\n", after.Case)
	}
}

// reasonCount counts where a plugin gave a reason.
type reasonCount struct {
	plugin, code, reason string
	pods, verdicts       int
}

// printReasons prints how often each reason occurs, and how many pods each plugin refuses on no, some or all nodes.
func printReasons(directory string) error {
	counts := map[[3]string]*reasonCount{}
	shares := map[string]*[3]int{}
	pods, clusters := 0, 0
	for _, g := range groups {
		lines, err := readTable(g, directory)
		if err != nil {
			return err
		}
		for _, line := range lines {
			var c testCase
			if err := json.Unmarshal(line, &c); err != nil {
				return err
			}
			clusters++
			pods += len(c.Judged)
			for _, judged := range c.Judged {
				countReasons(judged, len(c.Nodes), counts)
				countShares(g.name, judged, len(c.Nodes), shares)
			}
		}
	}
	fmt.Printf("%d clusters, %d pods\n\n", clusters, pods)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	var names []string
	for name := range shares {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintln(out, "| group | plugin | accepted on all nodes | on some | on none |\n|---|---|---|---|---|")
	for _, name := range names {
		s := shares[name]
		fmt.Fprintf(out, "| %s | %d | %d | %d |\n", name, s[0], s[1], s[2])
	}
	out.Flush()
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
	fmt.Fprintln(out, "\n| plugin | reason | code | pods | verdicts |\n|---|---|---|---|---|")
	for _, row := range rows {
		fmt.Fprintf(out, "| %s | `%s` | %s | %d | %d |\n", row.plugin, row.reason, row.code, row.pods, row.verdicts)
	}
	return out.Flush()
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
