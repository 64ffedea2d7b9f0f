// Command schemas writes the schemas of the kinds that policies match: the OpenAPI v3 of the API server, without descriptions.
//
//	go run ./schemas -specs "$(cd ../cluster && go list -m -f '{{.Dir}}' k8s.io/kubernetes)/api/openapi-spec/v3" \
//		-definitions ../../manifests/components/pod-group-crds -to ../../src/policy/schema/schemas.json
//
// Each definition is one line, so that a diff shows what another version of Kubernetes (see ../cluster/go.mod) changes.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"go.yaml.in/yaml/v2"
)

// The file names of the API groups whose kinds are written.
var groups = []string{
	"api__v1", "apis__apps__v1", "apis__batch__v1", "apis__policy__v1", "apis__rbac.authorization.k8s.io__v1",
	"apis__networking.k8s.io__v1", "apis__node.k8s.io__v1", "apis__autoscaling__v2", "apis__coordination.k8s.io__v1",
	"apis__scheduling.k8s.io__v1", "apis__scheduling.k8s.io__v1alpha2",
	"apis__admissionregistration.k8s.io__v1", "apis__admissionregistration.k8s.io__v1beta1", "apis__admissionregistration.k8s.io__v1alpha1",
}

type object = map[string]any

type resource struct {
	Group      string `json:"group"`
	Version    string `json:"version"`
	Resource   string `json:"resource"`
	Namespaced bool   `json:"namespaced"`
	// The kind of the objects. For a subresource it can belong to another group.
	Kind       string `json:"kind"`
	Definition string `json:"definition"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// short returns the name of a definition without the prefix that all names share.
func short(name string) string {
	name = name[strings.LastIndex(name, "/")+1:]
	for _, prefix := range []string{
		"io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.util.", "io.k8s.apimachinery.pkg.api.",
		"io.k8s.apimachinery.pkg.",
	} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			return rest
		}
	}
	return name
}

// The schema keywords that are copied unchanged.
var kept = []string{
	"type", "format", "required", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
}

func reduce(schema object) object {
	reduced := object{}
	for _, key := range kept {
		if value, found := schema[key]; found && value != false {
			reduced[key] = value
		}
	}
	// Defaults of keys matter where lists are merged. An empty default has no effect.
	switch value := schema["default"].(type) {
	case string:
		if value != "" {
			reduced["default"] = value
		}
	case float64, int, bool:
		if value != float64(0) && value != false {
			reduced["default"] = value
		}
	}
	if reference, found := schema["$ref"].(string); found {
		reduced["$ref"] = short(reference)
	}
	if all, found := schema["allOf"].([]any); found && len(all) == 1 {
		if reference, found := all[0].(object)["$ref"].(string); found {
			reduced["$ref"] = short(reference)
		}
	}
	// A quantity is a text or a number.
	if _, found := schema["oneOf"]; found || schema["format"] == "int-or-string" {
		delete(reduced, "type")
		delete(reduced, "format")
		reduced["x-kubernetes-int-or-string"] = true
	}
	if properties, found := schema["properties"].(object); found {
		fields := object{}
		for name, field := range properties {
			fields[name] = reduce(field.(object))
		}
		reduced["properties"] = fields
	}
	if items, found := schema["items"].(object); found {
		reduced["items"] = reduce(items)
	}
	if values, found := schema["additionalProperties"].(object); found {
		reduced["additionalProperties"] = reduce(values)
	}
	return reduced
}

// plain converts maps of YAML to maps of JSON.
func plain(value any) any {
	switch value := value.(type) {
	case map[any]any:
		made := object{}
		for key, inner := range value {
			made[fmt.Sprint(key)] = plain(inner)
		}
		return made
	case []any:
		for index := range value {
			value[index] = plain(value[index])
		}
	}
	return value
}

// resources reads from a path and its POST, PUT or CONNECT which resource has which kind.
func resources(path string, operations object, definitions map[string]object) (found []resource) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" && len(parts) > 2 {
		parts = append([]string{""}, parts[1:]...)
	} else if len(parts) > 3 {
		parts = parts[1:]
	} else {
		return nil
	}
	group, version, rest := parts[0], parts[1], parts[2:]
	if rest[0] == "watch" {
		return nil
	}
	namespaced := len(rest) > 2 && rest[0] == "namespaces" && rest[1] == "{namespace}"
	if namespaced {
		rest = rest[2:]
	}
	name := rest[0]
	if len(rest) > 2 {
		name += "/" + rest[2]
	}
	for _, method := range []string{"post", "put"} {
		operation, found := operations[method].(object)
		if !found {
			continue
		}
		kind := operation["x-kubernetes-group-version-kind"].(object)
		for definition, schema := range definitions {
			for _, of := range list(schema["x-kubernetes-group-version-kind"]) {
				of := of.(object)
				if of["kind"] == kind["kind"] && of["group"] == kind["group"] && of["version"] == kind["version"] {
					return []resource{{group, version, name, namespaced, kind["kind"].(string), short(definition)}}
				}
			}
		}
		// Options of CONNECT have no definition.
	}
	return nil
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}

func main() {
	specs := flag.String("specs", "", "api/openapi-spec/v3 of the module k8s.io/kubernetes")
	custom := flag.String("definitions", "", "a directory of CustomResourceDefinitions")
	to := flag.String("to", "", "where to write")
	flag.Parse()

	definitions := map[string]object{}
	served := map[string]resource{}
	add := func(one resource) { served[one.Group+"/"+one.Version+"/"+one.Resource] = one }
	for _, group := range groups {
		var spec struct {
			Paths      map[string]object
			Components struct{ Schemas map[string]object }
		}
		text := must(os.ReadFile(filepath.Join(*specs, group+"_openapi.json")))
		if err := json.Unmarshal(text, &spec); err != nil {
			log.Fatalf("%s: %v", group, err)
		}
		for name, schema := range spec.Components.Schemas {
			fields, _ := schema["properties"].(object)
			isList := strings.HasSuffix(name, "List") && fields["items"] != nil
			if !isList {
				definitions[short(name)] = reduce(schema)
			}
		}
		for path, operations := range spec.Paths {
			for _, one := range resources(path, operations, spec.Components.Schemas) {
				add(one)
			}
		}
	}
	for _, path := range must(filepath.Glob(filepath.Join(*custom, "*.*.yaml"))) {
		var read any
		if err := yaml.Unmarshal(must(os.ReadFile(path)), &read); err != nil {
			log.Fatalf("%s: %v", path, err)
		}
		spec := plain(read).(object)["spec"].(object)
		names := spec["names"].(object)
		for _, version := range list(spec["versions"]) {
			version := version.(object)
			schema := reduce(version["schema"].(object)["openAPIV3Schema"].(object))
			fields := schema["properties"].(object)
			fields["apiVersion"], fields["kind"] = object{"type": "string"}, object{"type": "string"}
			fields["metadata"] = object{"$ref": "meta.v1.ObjectMeta"}
			group, name := spec["group"].(string), version["name"].(string)
			definition := group + "." + name + "." + names["kind"].(string)
			definitions[definition] = schema
			one := resource{group, name, names["plural"].(string), spec["scope"] == "Namespaced", names["kind"].(string), definition}
			add(one)
			subresources, _ := version["subresources"].(object)
			if _, found := subresources["status"]; found {
				one.Resource += "/status"
				add(one)
			}
		}
	}

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	lines := func(count int, line func(int) (string, any)) {
		for index := range count {
			if index > 0 {
				out.WriteString(",")
			}
			out.WriteString("\n")
			key, value := line(index)
			if key != "" {
				out.Write(must(json.Marshal(key)))
				out.WriteString(":")
			}
			if err := encoder.Encode(value); err != nil {
				log.Fatal(err)
			}
			out.Truncate(out.Len() - 1)
		}
	}
	ordered := keys(served)
	out.WriteString(`{"resources":[`)
	lines(len(ordered), func(index int) (string, any) { return "", served[ordered[index]] })
	out.WriteString("\n],\"definitions\":{")
	named := keys(definitions)
	lines(len(named), func(index int) (string, any) { return named[index], definitions[named[index]] })
	out.WriteString("\n}}\n")
	if err := os.WriteFile(*to, out.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(served), "resources,", len(definitions), "definitions,", out.Len(), "bytes")
}

func keys[V any](of map[string]V) []string {
	found := make([]string, 0, len(of))
	for key := range of {
		found = append(found, key)
	}
	sort.Strings(found)
	return found
}
