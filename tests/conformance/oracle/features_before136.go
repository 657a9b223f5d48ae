//go:build before136

package main

import dracel "k8s.io/dynamic-resource-allocation/cel"

// features are the defaults of 1.34 and 1.35: consumable capacity is alpha there.
func features() dracel.Features {
	return dracel.Features{EnableConsumableCapacity: false}
}
