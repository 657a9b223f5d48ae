package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	devicesPerNode = 8
	speedDriver    = "gpu.example.com"
	speedClass     = `device.driver == "gpu.example.com"`
	speedRequest   = `device.attributes["gpu.example.com"].model == "H100"` +
		` && device.attributes["gpu.example.com"].index >= 0` +
		` && device.attributes["gpu.example.com"].ecc` +
		` && device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("9.0.0"))` +
		` && device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`
	// A measurement is the median of tries, for as long as this or as often as that.
	longestMeasurement = 3 * time.Second
	mostTries          = 2001
)

// speed is what one allocation costs in a fleet, in nanoseconds, medians: one device of one claim,
// a class with one clause and a request with five, no matches kept from one node to the next. A node
// that does not fit fails in the last clause of each of its devices.
type speed struct {
	Devices int `json:"devices"`
	Nodes   int `json:"nodes"`
	// NewAllocator is once per pod; the others do not include it.
	NewAllocator int64 `json:"new_allocator_ns"`
	Fits         int64 `json:"one_node_that_fits_ns"`
	DoesNotFit   int64 `json:"one_node_that_does_not_ns"`
	// FirstFit* stop at the first node that fits, FirstFitBest with the very first one.
	FirstFitBest   int64 `json:"first_fit_first_node_ns"`
	FirstFitMiddle int64 `json:"first_fit_middle_node_ns"`
	// EveryNode* go on, as scoring would have to.
	EveryNodeAllFit  int64 `json:"every_node_all_fit_ns"`
	EveryNodeLastFit int64 `json:"every_node_last_fits_ns"`
}

// fleet is a cluster, and what is allocated in it.
type fleet struct {
	nodes   []*v1.Node
	slices  []*resourceapi.ResourceSlice
	classes []*resourceapi.DeviceClass
	held    []*resourceapi.ResourceClaim
	claims  []*resourceapi.ResourceClaim
}

// measure prints one line for each number of devices in the comma-separated list.
func measure(numbers string) error {
	encoder := json.NewEncoder(os.Stdout)
	for _, text := range strings.Split(numbers, ",") {
		devices, err := strconv.Atoi(text)
		if err != nil || devices < 1 {
			return fmt.Errorf("-speed: %q is no number of devices", text)
		}
		found, err := speedOf(devices)
		if err != nil {
			return err
		}
		if err := encoder.Encode(found); err != nil {
			return err
		}
	}
	return nil
}

func speedOf(devices int) (speed, error) {
	count := (devices + devicesPerNode - 1) / devicesPerNode
	found := speed{Devices: devices, Nodes: count}
	first := newFleet(count, func(node int) bool { return node == 0 })
	middle := newFleet(count, func(node int) bool { return node == count/2 })
	last := newFleet(count, func(node int) bool { return node == count-1 })
	all := newFleet(count, func(int) bool { return true })
	found.NewAllocator = median(func() { all.allocator() })
	one := first.allocator()
	found.Fits = median(func() { first.allocateOn(one, first.nodes[0]) })
	if count > 1 {
		found.DoesNotFit = median(func() { first.allocateOn(one, first.nodes[1]) })
	}
	found.FirstFitBest = median(first.stopAtFirst())
	found.FirstFitMiddle = median(middle.stopAtFirst())
	found.EveryNodeAllFit = median(all.tryEvery())
	found.EveryNodeLastFit = median(last.tryEvery())
	if !first.allocateOn(one, first.nodes[0]) || (count > 1 && first.allocateOn(one, first.nodes[1])) {
		return found, fmt.Errorf("-speed: the nodes do not fit as they are meant to")
	}
	return found, nil
}

// newFleet is a cluster of which only some nodes fit; nothing in it is in use.
func newFleet(count int, fits func(node int) bool) fleet {
	made := fleet{classes: speedClasses, claims: speedClaims}
	for n := range count {
		name := fmt.Sprintf("node-%06d", n)
		made.nodes = append(made.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		made.slices = append(made.slices, speedSlice(name, fits(n)))
	}
	return made
}

func speedSlice(node string, fits bool) *resourceapi.ResourceSlice {
	memory := resource.MustParse("24Gi")
	if fits {
		memory = resource.MustParse("80Gi")
	}
	spec := resourceapi.ResourceSliceSpec{
		Driver:   speedDriver,
		Pool:     resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		NodeName: &node,
	}
	model, version, ecc := "H100", "12.4.0", true
	for n := range devicesPerNode {
		index := int64(n)
		spec.Devices = append(spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", n),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"model":         {StringValue: &model},
				"index":         {IntValue: &index},
				"ecc":           {BoolValue: &ecc},
				"driverVersion": {VersionValue: &version},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: memory}},
		})
	}
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu"}, Spec: spec}
}

func (f fleet) allocator() structured.Allocator {
	features, err := gatesOf(defaultGates)
	if err != nil {
		panic(err) // no input is read here
	}
	state := allocatedState(f.held, features.ConsumableCapacity)
	made, err := structured.NewAllocator(
		context.Background(), features, state, classesOf(f.classes), f.slices, selectorsOf(defaultGates),
	)
	if err != nil {
		panic(err) // no input is read here
	}
	return made
}

var speedClasses = []*resourceapi.DeviceClass{{
	ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
	Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: speedClass}},
	}},
}}

var speedClaims = []*resourceapi.ResourceClaim{{
	ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default"},
	Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "r0",
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "gpu",
			AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
			Count:           1,
			Selectors: []resourceapi.DeviceSelector{
				{CEL: &resourceapi.CELDeviceSelector{Expression: speedRequest}},
			},
		},
	}}}},
}}

func (f fleet) allocateOn(allocator structured.Allocator, node *v1.Node) bool {
	found, err := allocator.Allocate(context.Background(), node, f.claims)
	if err != nil {
		panic(err) // those who make fleets see to it that there is none
	}
	return len(found) > 0
}

func (f fleet) stopAtFirst() func() {
	allocator := f.allocator()
	return func() {
		for _, node := range f.nodes {
			if f.allocateOn(allocator, node) {
				return
			}
		}
	}
}

func (f fleet) tryEvery() func() {
	allocator := f.allocator()
	return func() {
		for _, node := range f.nodes {
			f.allocateOn(allocator, node)
		}
	}
}

func median(work func()) int64 {
	took, _ := medians(work)
	return took
}

// medians are by the wall's clock and by the thread's, which other work on the machine moves less:
// what Go's garbage collector does on other threads is not in it.
func medians(work func()) (wall, thread int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	work()
	var walls, threads []int64
	for began := time.Now(); len(walls) < mostTries; {
		used, start := threadTime(), time.Now()
		work()
		walls = append(walls, time.Since(start).Nanoseconds())
		threads = append(threads, threadTime()-used)
		if time.Since(began) > longestMeasurement {
			break
		}
	}
	slices.Sort(walls)
	slices.Sort(threads)
	return walls[len(walls)/2], threads[len(threads)/2]
}
