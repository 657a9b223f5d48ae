//go:build !before135

package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

type (
	preFilterResult = fwk.PreFilterResult
	factory         func(context.Context, runtime.Object, fwk.Handle, feature.Features) (fwk.Plugin, error)
)

// handle is the scheduler as far as the plugins ask it: which classes stand for extended resources.
type handle struct {
	fwk.Handle
	manager manager
}

type manager struct {
	fwk.SharedDRAManager
	classes *extendedresourcecache.ExtendedResourceCache
}

func newHandle(ctx context.Context, classes []*resourceapi.DeviceClass) fwk.Handle {
	known := extendedresourcecache.NewExtendedResourceCache(klog.FromContext(ctx))
	for _, class := range classes {
		known.OnAdd(class, true)
	}
	return handle{manager: manager{classes: known}}
}

func (h handle) SharedDRAManager() fwk.SharedDRAManager { return h.manager }

func (m manager) DeviceClassResolver() fwk.DeviceClassResolver { return m.classes }
