// Command helm is Helm, built from its module, for tests of the chart.
package main

import (
	"os"

	"helm.sh/helm/v4/pkg/cmd"
)

func main() {
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err == nil {
		err = root.Execute()
	}
	if err != nil {
		os.Exit(1)
	}
}
