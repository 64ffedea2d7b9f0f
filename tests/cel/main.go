// Command cel evaluates expressions with the CEL library of the API server and writes the results as tables.
//
//	go run . -signatures ../../src/cel/library/signatures.tsv
//	go run . -data ../data/cel -expressions expressions.txt -table ../data/cel/table.json
//	go run . -data ../data/cel -expressions mutated.txt -table ../data/cel/mutated.json
//
// The first form writes the declaration of every function of the environment. The other forms write the result of each
// expression: issues with their positions, value or error text, and cost. src/cel/tests/table.rs compares with them.
// Another version of Kubernetes: change go.mod, run all three, and look at what changed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type issue struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

type row struct {
	Expression string  `json:"expression"`
	Issues     []issue `json:"issues,omitempty"`
	Type       string  `json:"type,omitempty"`
	Program    string  `json:"program,omitempty"`
	Value      string  `json:"value,omitempty"`
	Error      string  `json:"error,omitempty"`
	Cost       uint64  `json:"cost"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// read decodes a JSON file as the API server decodes objects: whole numbers are int64.
func read(path string) any {
	decoder := json.NewDecoder(must(os.Open(path)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	return numbers(value)
}

func numbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return i
		}
		return must(v.Float64())
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return value
}

func environmentFor(schemaPath string) *cel.Env {
	options := []cel.EnvOption{
		cel.Variable("object", cel.DynType),
		cel.Variable("other", cel.DynType),
		cel.Variable("i", cel.IntType),
		cel.Variable("u", cel.UintType),
		cel.Variable("d", cel.DoubleType),
		cel.Variable("s", cel.StringType),
		cel.Variable("b", cel.BoolType),
		cel.Variable("by", cel.BytesType),
		cel.Variable("n", cel.NullType),
		cel.Variable("l", cel.ListType(cel.IntType)),
		cel.Variable("ls", cel.ListType(cel.StringType)),
		cel.Variable("m", cel.MapType(cel.StringType, cel.IntType)),
		cel.Variable("ts", cel.TimestampType),
		cel.Variable("dur", cel.DurationType),
	}
	extension := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options}
	if schemaPath != "" {
		var schema spec.Schema
		if err := json.Unmarshal(must(os.ReadFile(schemaPath)), &schema); err != nil {
			log.Fatal(err)
		}
		declared := openapi.SchemaDeclType(&schema, false).MaybeAssignTypeName("Pod")
		extension.DeclTypes = []*apiservercel.DeclType{declared}
		extension.EnvOptions = append(extension.EnvOptions, cel.Variable("pod", declared.CelType()))
	}
	set := environment.MustBaseEnvSet(version.MajorMinor(1, 36))
	set = must(set.Extend(extension, environment.StrictCostOpt))
	set = must(set.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			common.ResolverEnvOption(&mutation.DynamicTypeResolver{}),
			environment.UnversionedLib(library.JSONPatch),
		},
	}))
	return set.StoredExpressionsEnv()
}

func signatures(env *cel.Env, path string) {
	var lines []string
	functions := env.Functions()
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, overload := range functions[name].OverloadDecls() {
			lines = append(lines, signature(name, overload))
		}
	}
	text := "# function\toverload\tmember\targuments\tresult: written by tests/cel, not by hand\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

func signature(name string, overload *decls.OverloadDecl) string {
	kind := "global"
	if overload.IsMemberFunction() {
		kind = "member"
	}
	arguments := make([]string, 0, len(overload.ArgTypes()))
	for _, argument := range overload.ArgTypes() {
		arguments = append(arguments, typeName(argument))
	}
	return strings.Join([]string{name, overload.ID(), kind, strings.Join(arguments, ";"), typeName(overload.ResultType())}, "\t")
}

// typeName writes a type with a ' before a type parameter.
func typeName(t *cel.Type) string {
	switch t.Kind() {
	case types.TypeParamKind:
		return "'" + t.TypeName()
	case types.DurationKind:
		return "duration"
	case types.TimestampKind:
		return "timestamp"
	case types.NullTypeKind:
		return "null"
	}
	if len(t.Parameters()) == 0 {
		return t.DeclaredTypeName()
	}
	parameters := make([]string, 0, len(t.Parameters()))
	for _, parameter := range t.Parameters() {
		parameters = append(parameters, typeName(parameter))
	}
	return t.TypeName() + "(" + strings.Join(parameters, ",") + ")"
}

// show writes a value so that equal values of equal types have equal text.
func show(value ref.Val) string {
	switch v := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return strconv.FormatBool(bool(v))
	case types.Int:
		return strconv.FormatInt(int64(v), 10)
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10) + "u"
	case types.Double:
		return strconv.FormatFloat(float64(v), 'g', -1, 64) + "d"
	case types.String:
		return quote(string(v))
	case types.Bytes:
		return fmt.Sprintf("b%x", []byte(v))
	case types.Duration:
		return "duration(" + string(v.ConvertToType(types.StringType).(types.String)) + ")"
	case types.Timestamp:
		return "timestamp(" + v.Time.UTC().Format("2006-01-02T15:04:05.999999999Z07:00") + ")"
	case *types.Type:
		return "type(" + v.TypeName() + ")"
	case *types.Optional:
		if !v.HasValue() {
			return "optional.none()"
		}
		return "optional.of(" + show(v.GetValue()) + ")"
	case traits.Mapper:
		var entries []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			entries = append(entries, show(key)+": "+show(v.Get(key)))
		}
		sort.Strings(entries)
		return "{" + strings.Join(entries, ", ") + "}"
	case traits.Lister:
		var items []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			items = append(items, show(it.Next()))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case *mutation.JSONPatchVal:
		text := "JSONPatch{from: " + quote(v.From) + ", op: " + quote(v.Op) + ", path: " + quote(v.Path)
		if v.Val != nil {
			text += ", value: " + show(v.Val)
		}
		return text + "}"
	case *dynamic.ObjectVal:
		native := types.DefaultTypeAdapter.NativeToValue(v.Value())
		return v.Type().TypeName() + show(native)
	}
	if quantity, ok := value.Value().(*resource.Quantity); ok {
		canonical := quantity.DeepCopy()
		canonical.Neg()
		canonical.Neg()
		return value.Type().TypeName() + "(" + canonical.String() + ")"
	}
	if format, ok := value.Value().(apiservercel.Format); ok {
		return value.Type().TypeName() + "(" + format.Name + ")"
	}
	return fmt.Sprintf("%s(%v)", value.Type().TypeName(), value.Value())
}

func quote(text string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		log.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func evaluate(env *cel.Env, bindings map[string]any, expression string) (result row) {
	result = row{Expression: expression}
	// cel-go panics when it checks [?dyn(1)].
	defer func() {
		if panicked := recover(); panicked != nil {
			result = row{Expression: expression, Error: "panic"}
		}
	}()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		for _, found := range issues.Errors() {
			result.Issues = append(result.Issues, issue{found.Location.Line(), found.Location.Column(), found.Message})
		}
		sort.SliceStable(result.Issues, func(a, b int) bool {
			x, y := result.Issues[a], result.Issues[b]
			if x.Line != y.Line {
				return x.Line < y.Line
			}
			if x.Column != y.Column {
				return x.Column < y.Column
			}
			return x.Message < y.Message
		})
		return result
	}
	result.Type = cel.FormatCELType(ast.OutputType())
	program, err := env.Program(ast)
	if err != nil {
		result.Program = err.Error()
		return result
	}
	value, details, err := program.Eval(bindings)
	if details != nil && details.ActualCost() != nil {
		result.Cost = *details.ActualCost()
	}
	if err != nil {
		result.Error = err.Error()
		return result
	}
	result.Value = show(value)
	return result
}

// stable reports whether an expression has the same value in every run: Go iterates over maps in random order.
func stable(env *cel.Env, bindings map[string]any, first row) bool {
	for range 8 {
		again := evaluate(env, bindings, first.Expression)
		if again.Value != first.Value || again.Error != first.Error || again.Cost != first.Cost {
			return false
		}
	}
	return true
}

func main() {
	signaturesPath := flag.String("signatures", "", "where to write the declarations")
	expressions := flag.String("expressions", "", "one expression a line; # starts a comment")
	table := flag.String("table", "", "where to write what they are worth")
	data := flag.String("data", "", "where pod.json (of object and pod), other.json and schema.json (of pod) are")
	flag.Parse()

	if *signaturesPath != "" {
		signatures(environmentFor(""), *signaturesPath)
		return
	}
	env := environmentFor(filepath.Join(*data, "schema.json"))
	bindings := map[string]any{
		"object": read(filepath.Join(*data, "pod.json")), "pod": read(filepath.Join(*data, "pod.json")),
		"other": read(filepath.Join(*data, "other.json")),
		"i":     int64(7), "u": uint64(3), "d": 2.5, "s": "hello", "b": true, "by": []byte("abc"), "n": nil,
		"l": []int64{3, 1, 2}, "ls": []string{"b", "a", "c"}, "m": map[string]int64{"one": 1, "two": 2},
		"ts":  types.DefaultTypeAdapter.NativeToValue("2024-02-29T13:14:15.678Z").ConvertToType(types.TimestampType),
		"dur": types.DefaultTypeAdapter.NativeToValue("1h30m").ConvertToType(types.DurationType),
	}
	var rows []string
	for _, line := range strings.Split(string(must(os.ReadFile(*expressions))), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		found := evaluate(env, bindings, strings.ReplaceAll(line, "⏎", "\n"))
		if found.Error == "panic" || !stable(env, bindings, found) {
			fmt.Println("left out, cel-go panics or it depends on the order of a map:", found.Expression)
			continue
		}
		if err := encoder.Encode(found); err != nil {
			log.Fatal(err)
		}
		rows = append(rows, strings.TrimSpace(text.String()))
	}
	if err := os.WriteFile(*table, []byte("[\n"+strings.Join(rows, ",\n")+"\n]\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(rows), "rows")
}
