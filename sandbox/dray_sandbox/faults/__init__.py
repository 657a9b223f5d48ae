"""Whole stacks under seeded faults: real processes killed and stopped while users work.

``plan`` draws what happens from a seed, ``run`` makes it happen, ``history`` keeps every change
of Kubernetes' objects and judges it, ``leftovers`` looks for what nobody took away.
"""
