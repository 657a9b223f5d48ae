//go:build from137

package main

import (
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
)

// store gives a pod the defaults with which the API server stores it: those of the pod's own
// resources come after admission, once all containers are there.
func store(pod *corev1.Pod) error {
	defaults.SetObjectDefaults_Pod(pod)
	internal := &core.Pod{}
	if err := defaults.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return err
	}
	podutil.DefaultPodLevelResources(internal)
	stored := &corev1.Pod{}
	if err := defaults.Convert_core_Pod_To_v1_Pod(internal, stored, nil); err != nil {
		return err
	}
	*pod = *stored
	return nil
}
