"""Removes what dray made and nobody uses any more.

Claims, their finalizers and reservations are kube-controller-manager's to clean up, and
BindRequests are owned by their pods.
"""
