// Command chart keeps the Helm chart in manifests/chart equal to the kustomize base and its components.
//
//	go run .          compares; exit code 1 and a list of differences when the two differ
//	go run . write    writes the generated templates anew, then compares
//
// An object that depends on nothing but its namespace and on the choice of components is generated: the kustomize
// output of every choice of components is rendered, and the template repeats it. The Deployment and the ConfigMap of
// policies have their own values, so their templates are written by hand. The comparison renders both sides for every choice of
// components, with the template engine of Helm and the library of kustomize.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	chartDirectory = "../../manifests/chart"
	manifests      = "../../manifests"
	namespace      = "portcullis-system"
	maxShownBytes  = 100
	generatedMark  = "# Generated from manifests/base and manifests/components by tests/chart. Do not edit."
)

// component is a kustomize component and the Helm value that enables it. The order is the one that
// manifests/kustomization.yaml recommends.
type component struct {
	directory, value, template string
}

var components = []component{
	{"policies", "policies", ".Values.policies.enabled"},
	{"gate-fallback", "gateFallback", ".Values.gateFallback.enabled"},
	{"cert-manager", "certManager", ".Values.certManager.enabled"},
	{"pod-group-crds", "podGroupCRDs", ".Values.podGroupCRDs.enabled"},
}

// handWritten lists the objects whose templates are written by hand, because they have their own values.
var handWritten = map[string]bool{
	"Deployment/portcullis":         true,
	"ConfigMap/portcullis-policies": true,
	"Namespace/portcullis-system":   true,
}

type object = map[string]any

// choice is a set of components: bit i stands for components[i].
type choice int

func (c choice) has(i int) bool { return c&(1<<i) != 0 }

func (c choice) String() string {
	var names []string
	for i, component := range components {
		if c.has(i) {
			names = append(names, component.directory)
		}
	}
	if len(names) == 0 {
		return "the base alone"
	}
	return "with " + strings.Join(names, ", ")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	wanted := make(map[choice]map[string]object)
	for c := choice(0); c < 1<<len(components); c++ {
		objects, err := kustomize(c)
		if err != nil {
			return fmt.Errorf("kustomize, %s: %w", c, err)
		}
		wanted[c] = objects
	}
	templates, err := generate(wanted)
	if err != nil {
		return err
	}
	if len(arguments) == 1 && arguments[0] == "write" {
		if err := write(templates); err != nil {
			return err
		}
	} else if len(arguments) > 0 {
		return fmt.Errorf("unknown arguments %q: use none, or write", arguments)
	}
	problems := stale(templates)
	compared := 0
	for c := choice(0); c < 1<<len(components); c++ {
		rendered, err := helm(c)
		if err != nil {
			return fmt.Errorf("helm, %s: %w", c, err)
		}
		problems = append(problems, compare(c, wanted[c], rendered)...)
		compared += len(wanted[c])
	}
	problems = append(problems, lintChart()...)
	if len(problems) > 0 {
		return fmt.Errorf("the chart and the kustomize manifests differ:\n%s", strings.Join(problems, "\n"))
	}
	fmt.Printf("chart: %d objects in %d choices of components are equal\n", compared, len(wanted))
	return nil
}

// kustomize renders the base with a choice of components.
func kustomize(c choice) (map[string]object, error) {
	directory, err := os.MkdirTemp(manifests, ".chart-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	// The image and the other fields that the installed kustomization sets, with other components.
	installed, err := os.ReadFile(filepath.Join(manifests, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var root map[string]any
	if err := yaml.Unmarshal(installed, &root); err != nil {
		return nil, err
	}
	root["resources"] = []string{"../base"}
	var chosen []string
	for i, component := range components {
		if c.has(i) {
			chosen = append(chosen, "../components/"+component.directory)
		}
	}
	if len(chosen) > 0 {
		root["components"] = chosen
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, err
	}
	text, err = resources.AsYaml()
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// helm renders the chart with the values that stand for a choice of components.
func helm(c choice) (map[string]object, error) {
	chart, err := loader.Load(chartDirectory)
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"namespace": map[string]any{"create": true},
	}
	for i, component := range components {
		values[component.value] = map[string]any{"enabled": c.has(i)}
	}
	options := common.ReleaseOptions{Name: "portcullis", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var documents bytes.Buffer
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&documents, "---\n%s\n", text)
		}
	}
	return parse(documents.Bytes())
}

// parse reads documents into objects by kind and name.
func parse(text []byte) (map[string]object, error) {
	objects := make(map[string]object)
	for _, document := range strings.Split("\n"+string(text), "\n---") {
		var one object
		if err := yaml.Unmarshal([]byte(document), &one); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		if len(one) == 0 {
			continue
		}
		key := name(one)
		if _, twice := objects[key]; twice {
			return nil, fmt.Errorf("%s is rendered twice", key)
		}
		normalise(one)
		objects[key] = one
	}
	return objects, nil
}

func name(one object) string {
	metadata, _ := one["metadata"].(map[string]any)
	return fmt.Sprintf("%v/%v", one["kind"], metadata["name"])
}

// normalise removes what only Helm adds: the labels by which it finds its own releases.
func normalise(one object) {
	metadata, _ := one["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	for _, key := range []string{"app.kubernetes.io/managed-by", "helm.sh/chart"} {
		delete(labels, key)
	}
	if labels != nil && len(labels) == 0 {
		delete(metadata, "labels")
	}
}

// generate makes a template for every object that is not in handWritten.
func generate(wanted map[choice]map[string]object) (map[string]string, error) {
	keys := make(map[string]bool)
	for _, objects := range wanted {
		for key := range objects {
			keys[key] = true
		}
	}
	templates := make(map[string]string)
	for key := range keys {
		if handWritten[key] {
			continue
		}
		bodies := make(map[choice]string)
		for c, objects := range wanted {
			body, err := templateBody(objects[key])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			bodies[c] = body
		}
		file := strings.ToLower(strings.ReplaceAll(key, "/", "-")) + ".yaml"
		templates[file] = generatedMark + "\n" + branches(bodies, 0, 0)
	}
	return templates, nil
}

// templateBody is the text of an object with its namespace as a value; empty for an absent object.
func templateBody(one object) (string, error) {
	if one == nil {
		return "", nil
	}
	text, err := yaml.Marshal(one)
	if err != nil {
		return "", err
	}
	if bytes.Contains(text, []byte("{{")) {
		return "", fmt.Errorf("the text contains {{, which Helm would evaluate")
	}
	return strings.ReplaceAll(string(text), namespace, "{{ .Release.Namespace }}"), nil
}

// branches nests one condition for each component that changes the object.
func branches(bodies map[choice]string, fixed choice, from int) string {
	for i := from; i < len(components); i++ {
		if !depends(bodies, fixed, i) {
			continue
		}
		with := branches(bodies, fixed|1<<i, i+1)
		without := branches(bodies, fixed, i+1)
		condition := components[i].template
		switch {
		case without == "":
			return "{{- if " + condition + " }}\n" + with + "{{- end }}\n"
		case with == "":
			return "{{- if not " + condition + " }}\n" + without + "{{- end }}\n"
		default:
			return "{{- if " + condition + " }}\n" + with + "{{- else }}\n" + without + "{{- end }}\n"
		}
	}
	return bodies[fixed]
}

// depends reports whether component i changes the object for any choice of the components after it.
func depends(bodies map[choice]string, fixed choice, i int) bool {
	for rest := choice(0); rest < 1<<len(components); rest += 1 << (i + 1) {
		if bodies[fixed|rest] != bodies[fixed|rest|1<<i] {
			return true
		}
	}
	return false
}

func write(templates map[string]string) error {
	directory := filepath.Join(chartDirectory, "templates", "generated")
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	for file, text := range templates {
		if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// stale returns the names of generated templates that differ from what would be generated now.
func stale(templates map[string]string) []string {
	directory := filepath.Join(chartDirectory, "templates", "generated")
	var problems []string
	for file, text := range templates {
		found, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil || string(found) != text {
			problems = append(problems, fmt.Sprintf("templates/generated/%s is out of date: run `go run . write` in tests/chart", file))
		}
	}
	entries, _ := os.ReadDir(directory)
	for _, entry := range entries {
		if _, known := templates[entry.Name()]; !known {
			problems = append(problems, fmt.Sprintf("templates/generated/%s stands for no object: run `go run . write` in tests/chart", entry.Name()))
		}
	}
	sort.Strings(problems)
	return problems
}

func compare(c choice, wanted, rendered map[string]object) []string {
	var problems []string
	for key, object := range wanted {
		other, found := rendered[key]
		switch {
		case !found:
			problems = append(problems, fmt.Sprintf("%s: the chart lacks %s", c, key))
		default:
			for _, difference := range differences("", object, other) {
				problems = append(problems, fmt.Sprintf("%s: %s%s", c, key, difference))
			}
		}
	}
	for key := range rendered {
		if _, found := wanted[key]; !found {
			problems = append(problems, fmt.Sprintf("%s: the chart has %s, and kustomize does not", c, key))
		}
	}
	sort.Strings(problems)
	return problems
}

// differences names each place at which two objects differ, with both values.
func differences(path string, wanted, rendered any) []string {
	switch wanted := wanted.(type) {
	case map[string]any:
		other, ok := rendered.(map[string]any)
		if !ok {
			break
		}
		keys := make(map[string]bool)
		for key := range wanted {
			keys[key] = true
		}
		for key := range other {
			keys[key] = true
		}
		var found []string
		for key := range keys {
			found = append(found, differences(path+"."+key, wanted[key], other[key])...)
		}
		sort.Strings(found)
		return found
	case []any:
		other, ok := rendered.([]any)
		if !ok || len(other) != len(wanted) {
			break
		}
		var found []string
		for i := range wanted {
			found = append(found, differences(fmt.Sprintf("%s[%d]", path, i), wanted[i], other[i])...)
		}
		return found
	}
	if reflect.DeepEqual(wanted, rendered) {
		return nil
	}
	return []string{fmt.Sprintf("%s: kustomize has %s, the chart %s", path, shown(wanted), shown(rendered))}
}

// shown is a value for a message, cut after maxShownBytes: a value can be the whole schema of a CRD.
func shown(value any) string {
	text := fmt.Sprint(value)
	if len(text) <= maxShownBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxShownBytes], "") + "…"
}

func lintChart() []string {
	var problems []string
	for _, message := range lint.RunAll(chartDirectory, map[string]any{}, namespace).Messages {
		if message.Severity >= support.WarningSev {
			problems = append(problems, "helm lint: "+message.Error())
		}
	}
	return problems
}
