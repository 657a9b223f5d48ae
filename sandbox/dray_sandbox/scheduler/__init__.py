"""The sandbox's kube-scheduler: it binds pods, and never allocates devices.

It reads what kube-scheduler's default plugins read of resources, pod count, host ports, node
selector, required node affinity, taints, ``unschedulable`` and resource claims, and nothing else:
no volumes, pod affinity, topology spread, preemption or classes that stand for resources.
"""
