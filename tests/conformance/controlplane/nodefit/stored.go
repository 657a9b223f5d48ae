//go:build !from137

package main

import (
	corev1 "k8s.io/api/core/v1"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
)

// store gives a pod the defaults with which the API server stores it.
func store(pod *corev1.Pod) error {
	defaults.SetObjectDefaults_Pod(pod)
	return nil
}
