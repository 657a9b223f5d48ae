"""The sandbox's kube-scheduler: it binds pods, and never allocates devices.

It reads what kube-scheduler's default plugins read of cpu, memory, pod count, node selector,
required node affinity, taints, ``unschedulable`` and resource claims, and nothing else: no
ports, volumes, pod affinity, topology spread, preemption or extended resources.
"""
