// Command scheduler asks the filter plugins of the real kube-scheduler about generated clusters and pods.
//
//	go run . write   writes ../data/scheduler
//	go run . check   generates the tables again and compares them with ../data/scheduler
//
// README.md describes the tables and how to raise the Kubernetes version.
package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/klog/v2"
)

const directory = "../data/scheduler"

func main() {
	// Plugins log at their own pace. Their verdicts are the only output that counts.
	flags := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(discard{})

	command := ""
	if len(os.Args) == 2 {
		command = os.Args[1]
	}
	var err error
	switch command {
	case "write":
		err = writeTables(directory)
	case "check":
		err = checkTables(directory)
	default:
		err = fmt.Errorf("usage: go run . write|check")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// discard drops what plugins log.
type discard struct{}

func (discard) Write(line []byte) (int, error) { return len(line), nil }
