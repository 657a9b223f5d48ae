"""The sandbox's kube-scheduler, which binds pods and never allocates devices.

It implements the default plugins for resources, pod count, host ports, node selector, required
node affinity, taints, ``unschedulable`` and resource claims. It does not implement volumes, pod
affinity, topology spread, preemption or extended resources of device classes.
"""
