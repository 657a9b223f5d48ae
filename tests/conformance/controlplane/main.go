// Command k8s is a Kubernetes control plane and its kubectl in one binary.
//
// The first argument (or the name it is called by) selects the program:
// etcd, kube-apiserver, kube-scheduler, kube-controller-manager or kubectl.
// dray's local stack and its conformance suite run against it, so that what
// they claim about Kubernetes is proved on Kubernetes.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var programs = map[string]func() *cobra.Command{
	"etcd":                    etcdCommand,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	if _, known := programs[name]; !known && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = os.Args[1:]
	}
	program, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "unknown program %q: expected etcd, kube-apiserver, kube-scheduler, kube-controller-manager or kubectl\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}

// etcdCommand serves one member on a client URL, without fsync unless asked:
// the data of a local stack is as short-lived as the stack.
func etcdCommand() *cobra.Command {
	var fsync bool
	command := &cobra.Command{
		Use:   "etcd DIR CLIENT_URL",
		Short: "Run a single etcd member",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return serveEtcd(args[0], args[1], fsync)
		},
		SilenceUsage: true,
	}
	command.Flags().BoolVar(&fsync, "fsync", false, "fsync every write, so that data survives a power loss")
	return command
}

func serveEtcd(dir, client string, fsync bool) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("client url %q: %w", client, err)
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenClientUrls = []url.URL{*clientURL}
	config.AdvertiseClientUrls = []url.URL{*clientURL}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.UnsafeNoFsync = !fsync
	config.LogLevel = "error"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	select {
	case <-stop.Done():
		return nil
	case err := <-server.Err():
		return err
	}
}
