package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// testCase is one line of a table: a cluster and the pods that were judged against it.
type testCase struct {
	Case              string            `json:"case"`
	Nodes             []json.RawMessage `json:"nodes,omitempty"`
	Namespaces        []json.RawMessage `json:"namespaces,omitempty"`
	Pods              []json.RawMessage `json:"pods,omitempty"`
	Volumes           []json.RawMessage `json:"persistentVolumes,omitempty"`
	Claims            []json.RawMessage `json:"persistentVolumeClaims,omitempty"`
	StorageClasses    []json.RawMessage `json:"storageClasses,omitempty"`
	CSINodes          []json.RawMessage `json:"csiNodes,omitempty"`
	CSIDrivers        []json.RawMessage `json:"csiDrivers,omitempty"`
	StorageCapacities []json.RawMessage `json:"csiStorageCapacities,omitempty"`
	Attachments       []json.RawMessage `json:"volumeAttachments,omitempty"`
	Judged            []judgedPod       `json:"judged"`
}

// judgedPod is a pod with the verdicts of all plugins.
type judgedPod struct {
	Pod       json.RawMessage `json:"pod"`
	Submitted json.RawMessage `json:"submitted,omitempty"`
	Refusals  []refusal       `json:"refusals"`
}

// group is one file of cases.
type group struct {
	name  string
	cases int
	// generate fills a case: the cluster, and the pods to judge as users submit them.
	generate func(d dice) (*cluster, []*v1.Pod)
}

// newCase generates, encodes and judges one case. What it judges is what it encoded.
func newCase(g group, index int) (*testCase, error) {
	d := newDice(g.name, index)
	world, pods := g.generate(d)
	result := &testCase{Case: fmt.Sprintf("%s-%d", g.name, index)}
	if err := result.encodeCluster(world); err != nil {
		return nil, err
	}
	written, err := result.decodeCluster()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	judge, err := newJudge(ctx, written)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		judged, err := judge.judged(pod)
		if err != nil {
			return nil, fmt.Errorf("%s: pod %s: %w", result.Case, pod.Name, err)
		}
		result.Judged = append(result.Judged, *judged)
	}
	return result, nil
}

// judged stores a pod as the API server does and returns it with its verdicts.
func (j *judge) judged(submitted *v1.Pod) (*judgedPod, error) {
	stored, err := storedPod(submitted)
	if err != nil {
		return nil, err
	}
	result := &judgedPod{}
	if result.Pod, err = encode(stored); err != nil {
		return nil, err
	}
	if changedAtCreation(submitted, stored) {
		// Everything but the merged selectors is the same.
		before := stored.DeepCopy()
		before.Spec.Affinity = submitted.Spec.Affinity
		before.Spec.TopologySpreadConstraints = submitted.Spec.TopologySpreadConstraints
		if result.Submitted, err = encode(before); err != nil {
			return nil, err
		}
	}
	written := &v1.Pod{}
	if err := json.Unmarshal(result.Pod, written); err != nil {
		return nil, err
	}
	result.Refusals, err = j.refusals(written)
	return result, err
}

func (c *testCase) encodeCluster(world *cluster) error {
	var errs [10]error
	c.Nodes, errs[0] = encodeAll(world.nodes)
	c.Namespaces, errs[1] = encodeAll(world.namespaces)
	c.Pods, errs[2] = encodeAll(world.pods)
	c.Volumes, errs[3] = encodeAll(world.volumes)
	c.Claims, errs[4] = encodeAll(world.claims)
	c.StorageClasses, errs[5] = encodeAll(world.storageClasses)
	c.CSINodes, errs[6] = encodeAll(world.csiNodes)
	c.CSIDrivers, errs[7] = encodeAll(world.csiDrivers)
	c.StorageCapacities, errs[8] = encodeAll(world.storageCapacities)
	c.Attachments, errs[9] = encodeAll(world.attachments)
	return errors.Join(errs[:]...)
}

func (c *testCase) decodeCluster() (*cluster, error) {
	world := &cluster{}
	var errs [10]error
	world.nodes, errs[0] = decodeAll[v1.Node](c.Nodes)
	world.namespaces, errs[1] = decodeAll[v1.Namespace](c.Namespaces)
	world.pods, errs[2] = decodeAll[v1.Pod](c.Pods)
	world.volumes, errs[3] = decodeAll[v1.PersistentVolume](c.Volumes)
	world.claims, errs[4] = decodeAll[v1.PersistentVolumeClaim](c.Claims)
	world.storageClasses, errs[5] = decodeAll[storagev1.StorageClass](c.StorageClasses)
	world.csiNodes, errs[6] = decodeAll[storagev1.CSINode](c.CSINodes)
	world.csiDrivers, errs[7] = decodeAll[storagev1.CSIDriver](c.CSIDrivers)
	world.storageCapacities, errs[8] = decodeAll[storagev1.CSIStorageCapacity](c.StorageCapacities)
	world.attachments, errs[9] = decodeAll[storagev1.VolumeAttachment](c.Attachments)
	return world, errors.Join(errs[:]...)
}

// table returns the lines of a group, generated on all cores.
func (g group) table() ([][]byte, error) {
	lines := make([][]byte, g.cases)
	errs := make([]error, g.cases)
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for index := range next {
				var result *testCase
				if result, errs[index] = newCase(g, index); errs[index] == nil {
					lines[index], errs[index] = json.Marshal(result)
				}
			}
		})
	}
	for index := range g.cases {
		next <- index
	}
	close(next)
	workers.Wait()
	return lines, errors.Join(errs...)
}

func (g group) path(directory string) string {
	return filepath.Join(directory, g.name+".jsonl.gz")
}

func writeTables(directory string) error {
	for _, g := range groups {
		lines, err := g.table()
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if _, err := writer.Write(append(line, '\n')); err != nil {
				return err
			}
		}
		if err := writer.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(g.path(directory), packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	page, err := reasonsPage(directory)
	if err != nil {
		return err
	}
	return os.WriteFile(reasonsPath(directory), []byte(page), 0o644)
}

// readTable returns the committed lines of a group.
func readTable(g group, directory string) ([][]byte, error) {
	file, err := os.Open(g.path(directory))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	var lines [][]byte
	scanner := bufio.NewScanner(unpacked)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		lines = append(lines, bytes.Clone(scanner.Bytes()))
	}
	return lines, scanner.Err()
}
