package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
)

// preFilter and filter are what is asked of a plugin.
type preFilter interface {
	PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) (*preFilterResult, *fwk.Status)
}

type filter interface {
	Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status
}

// predicate is a plugin with its default arguments, and what a refusal of it is called.
type predicate struct {
	plugin filter
	// sees is the pod as the plugin is shown it.
	sees func(*corev1.Pod) *corev1.Pod
	name func(reason string) string
}

// fails has the nodes that the plugin refuses, with the names of its refusals.
func (p predicate) fails(ctx context.Context, pod *corev1.Pod, nodes []fwk.NodeInfo) map[string][]string {
	found := map[string][]string{}
	refuse := func(node fwk.NodeInfo, status *fwk.Status) {
		for _, reason := range status.Reasons() {
			found[node.Node().Name] = append(found[node.Node().Name], p.name(reason))
		}
	}
	pod = p.sees(pod)
	state := framework.NewCycleState()
	var only *preFilterResult
	if plugin, asks := p.plugin.(preFilter); asks {
		result, status := plugin.PreFilter(ctx, state, pod, nodes)
		if status.IsSkip() {
			return found
		}
		if !status.IsSuccess() {
			for _, node := range nodes {
				refuse(node, status)
			}
			return found
		}
		only = result
	}
	for _, node := range nodes {
		if only != nil && !only.AllNodes() && !only.NodeNames.Has(node.Node().Name) {
			found[node.Node().Name] = append(found[node.Node().Name], p.name("PreFilterResult"))
		} else if status := p.plugin.Filter(ctx, state, pod, node); !status.IsSuccess() {
			refuse(node, status)
		}
	}
	return found
}

func newPredicates(ctx context.Context, classes []*resourceapi.DeviceClass) ([]predicate, error) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	handle := newHandle(ctx, classes)
	made := []predicate{}
	for _, one := range []struct {
		plugin string
		make   factory
		sees   func(*corev1.Pod) *corev1.Pod
		name   func(string) string
	}{
		{names.NodeUnschedulable, nodeunschedulable.New, whole, always("unschedulable")},
		{names.NodeResourcesFit, noderesources.NewFit, whole, resource},
		{names.NodePorts, nodeports.New, whole, always("host ports")},
		// The plugin looks at both at once; shown one of them, it tells which refuses.
		{names.NodeAffinity, nodeaffinity.New, withoutAffinity, always("node selector")},
		{names.NodeAffinity, nodeaffinity.New, withoutSelector, always("node affinity")},
		{names.TaintToleration, tainttoleration.New, whole, always("taints")},
	} {
		arguments, err := defaultArguments(one.plugin)
		if err != nil {
			return nil, err
		}
		plugin, err := one.make(ctx, arguments, handle, features)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", one.plugin, err)
		}
		made = append(made, predicate{plugin.(filter), one.sees, one.name})
	}
	return made, nil
}

// defaultArguments are those of the default profile.
func defaultArguments(plugin string) (runtime.Object, error) {
	configuration, err := latest.Default()
	if err != nil {
		return nil, err
	}
	for _, entry := range configuration.Profiles[0].PluginConfig {
		if entry.Name == plugin {
			return entry.Args, nil
		}
	}
	return nil, nil
}

// resource turns "Insufficient cpu" and "Too many pods" into the name of the resource.
func resource(reason string) string {
	if name, found := strings.CutPrefix(reason, "Insufficient "); found {
		return name
	}
	if reason == "Too many pods" {
		return "pods"
	}
	return reason
}

func always(name string) func(string) string {
	return func(string) string { return name }
}

func whole(pod *corev1.Pod) *corev1.Pod { return pod }

func withoutAffinity(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Affinity = nil
	return pod
}

func withoutSelector(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeSelector = nil
	return pod
}
