"""Removes objects that dray made and nobody uses any more.

kube-controller-manager cleans up claims, their finalizers and reservations. BindRequests are owned
by their pods.
"""
