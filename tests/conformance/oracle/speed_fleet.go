package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fleetFile is a fleet that somebody else measures, too: the nodes are those of the slices, in their
// order.
type fleetFile struct {
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	// Allocated are claims that hold devices.
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
}

// took is one measurement in nanoseconds, by the wall's clock and by the thread's.
type took struct {
	Wall   int64 `json:"wall_ns"`
	Thread int64 `json:"thread_ns"`
}

// fleetSpeed is what allocating its claims costs in a fleet, medians; nothing is taken, so that each
// try is like the one before it. Nodes are gone through by one goroutine.
type fleetSpeed struct {
	Nodes int `json:"nodes"`
	// Fitting counts the nodes that fit, of which First is the first, counted from 0.
	Fitting int `json:"fitting"`
	First   int `json:"first"`
	// NewAllocator is once per pod; the others do not include it.
	NewAllocator took `json:"new_allocator"`
	// FirstFit stops at the first node that fits, EveryNode goes on, as scoring would have to.
	FirstFit  took `json:"first_fit"`
	EveryNode took `json:"every_node"`
}

// measureFleet prints one line.
func measureFleet(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("-speed-fleet: %w", err)
	}
	var file fleetFile
	if err := json.Unmarshal(content, &file); err != nil {
		return fmt.Errorf("-speed-fleet: %s: %w", path, err)
	}
	given := fleet{slices: file.Slices, classes: file.Classes, held: file.Allocated, claims: file.Claims}
	known := map[string]bool{}
	for _, slice := range file.Slices {
		if slice.Spec.NodeName == nil {
			return fmt.Errorf("-speed-fleet: slice %s names no node", slice.Name)
		}
		if name := *slice.Spec.NodeName; !known[name] {
			known[name] = true
			given.nodes = append(given.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	found := fleetSpeed{Nodes: len(given.nodes), First: -1}
	allocator := given.allocator()
	for number, node := range given.nodes {
		results, err := allocator.Allocate(context.Background(), node, given.claims)
		if err != nil {
			return fmt.Errorf("-speed-fleet: node %s: %w", node.Name, err)
		}
		if len(results) > 0 {
			found.Fitting++
			if found.First < 0 {
				found.First = number
			}
		}
	}
	found.NewAllocator = timed(func() { given.allocator() })
	found.FirstFit = timed(given.stopAtFirst())
	found.EveryNode = timed(given.tryEvery())
	return json.NewEncoder(os.Stdout).Encode(found)
}

func timed(work func()) took {
	wall, thread := medians(work)
	return took{wall, thread}
}
