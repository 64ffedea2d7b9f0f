// The control plane of a Kubernetes cluster in one binary: the first argument says which part to be.
// What it is for, and who calls it: the section "Tests" of ../../src/ARCHITECTURE.md.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

func main() {
	parts := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	// Like busybox: the name it was started by counts, else the first argument.
	name := filepath.Base(os.Args[0])
	if name != "etcd" && parts[name] == nil {
		if len(os.Args) < 2 {
			usage()
		}
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	part := parts[name]
	if part == nil {
		usage()
	}
	os.Exit(cli.Run(part()))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: control-plane etcd|kube-apiserver|kube-scheduler|kube-controller-manager|kubectl [flags]")
	os.Exit(2)
}
