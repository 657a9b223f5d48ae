//go:build !before136

package main

import dracel "k8s.io/dynamic-resource-allocation/cel"

// features are the defaults of 1.36 and 1.37: consumable capacity is beta, list attributes alpha.
func features() dracel.Features {
	return dracel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: false}
}
