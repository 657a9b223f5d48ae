"""The sandbox's kube-controller-manager: its resourceclaim-controller, nothing more.

Garbage collection by owner references and the end of namespaces are the sandbox API server's.
"""
