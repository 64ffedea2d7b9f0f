// Command quantities parses quantities with the parser of the API server and writes the results as a table.
//
//	go run ./quantities -table ../../src/text/quantity_cases.tsv
//
// It reads the first column of the table, an input as a JSON string, and writes the other columns again.
// The tests of src/text/quantity.rs compare the Rust parser with every row. To add an input, add a line with that input alone.
// Another version of Kubernetes: change go.mod, run it, and look at what changed.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/big"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
)

const header = `# Inputs as JSON strings, and what ParseQuantity of k8s.io/apimachinery %s makes of them (tests/cel/quantities writes it).
# Columns: input; billionths, or the error (format, suffix, numeric); canonical text; AsInt64; AsApproximateFloat64.
# "-" stands where there is no value. "over" and "under" stand for billionths that do not fit 128 bits.
`

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "k8s.io/apimachinery" {
			return module.Version
		}
	}
	return "?"
}

// Billionths of a quantity; false where they do not fit 128 bits.
func nanos(quantity resource.Quantity) (*big.Int, bool) {
	dec := quantity.AsDec()
	if dec.Scale() < -100 && dec.Sign() != 0 {
		return big.NewInt(int64(dec.Sign())), false
	}
	rounded := new(inf.Dec).Round(dec, 9, inf.RoundUp)
	value := rounded.UnscaledBig()
	return value, value.BitLen() < 128
}

func row(input string) string {
	quoted := new(strings.Builder)
	encoder := json.NewEncoder(quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(input); err != nil {
		log.Fatal(err)
	}
	name := strings.TrimSuffix(quoted.String(), "\n")
	quantity, err := resource.ParseQuantity(input)
	switch err {
	case nil:
	case resource.ErrFormatWrong:
		return name + "\tformat"
	case resource.ErrSuffix:
		return name + "\tsuffix"
	case resource.ErrNumeric:
		return name + "\tnumeric"
	default:
		log.Fatalf("%s: %v", name, err)
	}
	amount, fits := nanos(quantity)
	if !fits {
		word := "over"
		if amount.Sign() < 0 {
			word = "under"
		}
		return fmt.Sprintf("%s\t%s\t-\t-\t-", name, word)
	}
	integer := "-"
	if value, ok := quantity.AsInt64(); ok {
		integer = strconv.FormatInt(value, 10)
	}
	float := strconv.FormatFloat(quantity.AsApproximateFloat64(), 'g', -1, 64)
	number, suffix := quantity.CanonicalizeBytes(nil)
	return fmt.Sprintf("%s\t%s\t%s%s\t%s\t%s", name, amount, number, suffix, integer, float)
}

func main() {
	path := flag.String("table", "", "the table to read and to write")
	flag.Parse()
	text, err := os.ReadFile(*path)
	if err != nil {
		log.Fatal(err)
	}
	out := new(strings.Builder)
	fmt.Fprintf(out, header, version())
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		var input string
		first, _, _ := strings.Cut(line, "\t")
		if err := json.Unmarshal([]byte(first), &input); err != nil {
			log.Fatalf("%s: %v", line, err)
		}
		fmt.Fprintln(out, row(input))
	}
	if err := os.WriteFile(*path, []byte(out.String()), 0o644); err != nil {
		log.Fatal(err)
	}
}
