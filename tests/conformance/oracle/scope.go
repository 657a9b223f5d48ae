//go:build !before135

package main

import (
	"errors"

	"k8s.io/dynamic-resource-allocation/structured"
)

// failsOnNode says whether kube-scheduler goes on with other nodes after this error.
func failsOnNode(err error) bool {
	return errors.Is(err, structured.ErrFailedAllocationOnNode)
}
