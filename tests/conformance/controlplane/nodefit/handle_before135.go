//go:build before135

package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

type (
	preFilterResult = framework.PreFilterResult
	factory         func(context.Context, runtime.Object, framework.Handle, feature.Features) (framework.Plugin, error)
)

// newHandle is none: by default nothing is asked of it, because no class stands for a resource.
func newHandle(context.Context, []*resourceapi.DeviceClass) framework.Handle { return nil }
