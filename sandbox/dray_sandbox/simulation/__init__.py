"""All of dray in one process on virtual time, under seeded faults; the same seed, the same bytes.

``loop`` is the clock and the processes, ``faulty_adapters`` the faulty connections, ``actors`` the
real services and stand-ins; ``fault_injector`` causes faults, ``invariants`` checks Kubernetes'
objects.
"""
