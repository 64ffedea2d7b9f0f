package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
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
	page, err := reasonsPage(directory)
	if err != nil {
		return err
	}
	if committed, err := os.ReadFile(reasonsPath(directory)); err != nil || string(committed) != page {
		fmt.Printf("%s does not count what the tables hold\n", reasonsPath(directory))
		differences++
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
		removed := missing(before.Judged[i].Refusals, after.Judged[i].Refusals)
		added := missing(after.Judged[i].Refusals, before.Judged[i].Refusals)
		if len(removed)+len(added) > 0 {
			verdicts++
			fmt.Printf("%s: pod %s\n", after.Case, after.Judged[i].Pod)
			printRefusals("committed", removed)
			printRefusals("generated", added)
		}
	}
	if verdicts == 0 {
		fmt.Printf("%s: same verdicts, other objects\n", after.Case)
	}
}

// missing returns the refusals of a list that another list does not have.
func missing(list, other []refusal) []refusal {
	return slices.DeleteFunc(slices.Clone(list), func(r refusal) bool {
		return slices.ContainsFunc(other, func(o refusal) bool { return reflect.DeepEqual(r, o) })
	})
}

func printRefusals(from string, list []refusal) {
	for _, r := range list {
		text, _ := json.Marshal(r)
		fmt.Printf("  %s: %s\n", from, text)
	}
}
