//go:build before135

package main

// failsOnNode is about errors that 1.34 does not have yet.
func failsOnNode(error) bool {
	return false
}
