"""The sandbox's kube-controller-manager, which has only the resourceclaim-controller.

The sandbox API server collects garbage by owner references and deletes namespaces.
"""
