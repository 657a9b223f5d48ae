"""Pods and claims of pools that change hands between dray and kube-scheduler."""
