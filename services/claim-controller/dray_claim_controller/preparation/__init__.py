"""Pods whose node has not prepared their GPUs: the kubelet is made to try again."""
