package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// cachedSelectors is more than many cases have, unlike the 10 of kube-scheduler: compiling is most of
// the work. What is kept is the same however often it is compiled.
const cachedSelectors = 8192

// compiled are the selectors by the features of their language.
var compiled sync.Map

// selectorsOf is the cache for the gates named; all answers with the same gates share it.
func selectorsOf(names []string) *dracel.Cache {
	// Unlike for selectors alone, a gate that is not named is off.
	on := map[string]bool{"DRAConsumableCapacity": false}
	for _, name := range names {
		on[name] = true
	}
	language := features(on)
	if found, ok := compiled.Load(language); ok {
		return found.(*dracel.Cache)
	}
	found, _ := compiled.LoadOrStore(language, dracel.NewCache(cachedSelectors, language))
	return found.(*dracel.Cache)
}

type allocationQuestion struct {
	ID         string                       `json:"id"`
	Kubernetes string                       `json:"k8s"`
	Features   []string                     `json:"features"`
	Node       *v1.Node                     `json:"node"`
	Slices     []*resourceapi.ResourceSlice `json:"slices"`
	Classes    []*resourceapi.DeviceClass   `json:"classes"`
	Allocated  []*resourceapi.ResourceClaim `json:"allocated"`
	Claims     []*resourceapi.ResourceClaim `json:"claims"`
}

type allocationAnswer struct {
	ID string `json:"id"`
	// Allocations are nil where the claims do not fit, and where there is an error.
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Error       *string                        `json:"error"`
	Scope       string                         `json:"scope,omitempty"`
	Steps       int64                          `json:"steps"`
	// Observed holds the distinct answers of -repeat tries.
	Observed []allocationAnswer `json:"observed,omitempty"`
}

func (a allocationAnswer) failed(scope string, err error) allocationAnswer {
	text := err.Error()
	return allocationAnswer{ID: a.ID, Error: &text, Scope: scope, Steps: a.Steps}
}

func answerAllocation(line []byte) any {
	began := time.Now()
	found := tryAllocation(line)
	if *repeat == 1 {
		return found
	}
	seen := sets.New[string]()
	for n := 0; n < *repeat; n++ {
		again := tryAllocation(line)
		if key := distinction(again); !seen.Has(key) {
			seen.Insert(key)
			found.Observed = append(found.Observed, again)
		}
		if time.Since(began) > longestRepeat {
			break
		}
	}
	return found
}

// distinction is all of an answer but the share ids, which are random, and the work it took.
func distinction(found allocationAnswer) string {
	found.Steps = 0
	kept := make([]resourceapi.AllocationResult, len(found.Allocations))
	for n := range found.Allocations {
		found.Allocations[n].DeepCopyInto(&kept[n])
		for m := range kept[n].Devices.Results {
			kept[n].Devices.Results[m].ShareID = nil
		}
	}
	if found.Allocations != nil {
		found.Allocations = kept
	}
	text, _ := json.Marshal(found)
	return string(text)
}

// tryAllocation does for one node what kube-scheduler's plugin does in its Filter.
func tryAllocation(line []byte) (found allocationAnswer) {
	defer func() {
		if reason := recover(); reason != nil {
			found = found.failed("panic", fmt.Errorf("panic: %v", reason))
		}
	}()
	var q allocationQuestion
	if err := json.Unmarshal(line, &q); err != nil {
		return found.failed("input", err)
	}
	found.ID = q.ID
	wanted, err := gatesOf(q.Features)
	if err != nil {
		return found.failed("input", err)
	}
	if q.Node == nil {
		return found.failed("input", errors.New("the question names no node"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	cache := selectorsOf(q.Features)
	state := allocatedState(q.Allocated, wanted.ConsumableCapacity)
	allocator, err := structured.NewAllocator(ctx, wanted, state, classesOf(q.Classes), q.Slices, cache)
	if err != nil {
		return found.failed("pod", err)
	}
	allocations, err := allocator.Allocate(ctx, q.Node, q.Claims)
	found.Steps = stepsOf(allocator)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return found.failed("timeout", err)
	case err != nil && failsOnNode(err):
		return found.failed("node", err)
	case err != nil:
		return found.failed("pod", err)
	}
	// kube-scheduler takes any other length for "does not fit".
	if len(allocations) == len(q.Claims) {
		found.Allocations = allocations
	}
	return found
}

// allocatedState is what kube-scheduler gathers from the claims it sees: devices held for good,
// shares, and what the shares consume. With consumable capacity off every share holds its device.
func allocatedState(claims []*resourceapi.ResourceClaim, consumable bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case result.AdminAccess != nil && *result.AdminAccess:
			case consumable && result.ShareID != nil:
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
				if result.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
				}
			default:
				state.AllocatedDevices.Insert(device)
			}
		}
	}
	return state
}

type classLister map[string]*resourceapi.DeviceClass

func classesOf(classes []*resourceapi.DeviceClass) classLister {
	lister := make(classLister, len(classes))
	for _, class := range classes {
		lister[class.Name] = class
	}
	return lister
}

func (l classLister) List() ([]*resourceapi.DeviceClass, error) {
	var found []*resourceapi.DeviceClass
	for _, class := range l {
		found = append(found, class)
	}
	return found, nil
}

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := l[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}

// gatesOf switches on what the feature gates named mean to the allocator of this minor. Its Features
// tell the gates of each field, "A+B" where a field needs two.
func gatesOf(names []string) (structured.Features, error) {
	on := sets.New[string]()
	for _, name := range names {
		on.Insert(strings.Split(name, "+")...)
	}
	var wanted structured.Features
	known := sets.New("DRAResourceClaimDeviceStatus")
	for n := range reflect.TypeFor[structured.Features]().NumField() {
		var alone structured.Features
		reflect.ValueOf(&alone).Elem().Field(n).SetBool(true)
		for name := range alone.Set() {
			gates := strings.Split(name, "+")
			known.Insert(gates...)
			reflect.ValueOf(&wanted).Elem().Field(n).SetBool(on.HasAll(gates...))
		}
	}
	if unknown := on.Difference(known); len(unknown) > 0 {
		return wanted, fmt.Errorf("the allocator of this minor has no features %v", sets.List(unknown))
	}
	return wanted, nil
}

// stepsOf is 0 where the allocator does not count: the type of its statistics is internal.
func stepsOf(allocator structured.Allocator) int64 {
	statistics := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !statistics.IsValid() {
		return 0
	}
	return statistics.Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int()
}
