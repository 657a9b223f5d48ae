//go:build !before136

package main

import dracel "k8s.io/dynamic-resource-allocation/cel"

// features are the defaults of 1.36 and 1.37, consumable capacity beta and list attributes alpha,
// but for the gates given.
func features(gates map[string]bool) dracel.Features {
	shared, isGiven := gates["DRAConsumableCapacity"]
	return dracel.Features{
		EnableConsumableCapacity: shared || !isGiven,
		EnableListTypeAttributes: gates["DRAListTypeAttributes"],
	}
}

// defaultGates are those of the allocator that are on by default.
var defaultGates = []string{
	"DRAAdminAccess", "DRAConsumableCapacity", "DRADeviceBindingConditions",
	"DRAResourceClaimDeviceStatus", "DRADeviceTaints", "DRAPartitionableDevices", "DRAPrioritizedList",
}
