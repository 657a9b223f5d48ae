//go:build before136

package main

import dracel "k8s.io/dynamic-resource-allocation/cel"

// features are the defaults of 1.34 and 1.35, consumable capacity alpha, but for the gates given.
func features(gates map[string]bool) dracel.Features {
	return dracel.Features{EnableConsumableCapacity: gates["DRAConsumableCapacity"]}
}

// defaultGates are those of the allocator that are on by default.
var defaultGates = []string{"DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus"}
