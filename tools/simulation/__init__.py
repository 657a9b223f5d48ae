"""All of dray in one process on virtual time, under seeded faults; a seed determines every byte.

``loop`` has the clock and pausable processes, ``faulty_adapters`` the connections, ``processes``
the services and stand-ins; ``fault_injector`` causes faults, ``invariants`` checks Kubernetes'
objects.
"""
