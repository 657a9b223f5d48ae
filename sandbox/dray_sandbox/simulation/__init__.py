"""All of dray in one process on virtual time, under seeded faults; the same seed, the same bytes.

``loop`` is the clock and the processes, ``doors`` are faulty connections, ``actors`` the real
services and stand-ins, ``monkey`` does harm, ``invariants`` judges from Kubernetes' objects.
"""
