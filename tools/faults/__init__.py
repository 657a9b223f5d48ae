"""Whole stacks under seeded faults: real processes are killed and stopped.

``plan`` generates pods and faults from a seed, ``run`` runs them, ``history`` records and checks
every change of Kubernetes' objects, ``leftovers`` finds objects and files that remain.
"""
