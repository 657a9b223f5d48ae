"""The sandbox's kube-controller-manager: resource claims, node lifecycle, pods of lost nodes.

The sandbox API server collects garbage by owner references and deletes namespaces. No controller
creates pods for workloads.
"""
