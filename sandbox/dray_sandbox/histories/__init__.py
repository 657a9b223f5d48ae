"""Random histories of a small cluster, through the allocator's real decisions.

A fenced log and a facts stream stand in for the bus, and an executor for the claim-controller: it
commits late, never, or voids. Two to four replicas all believe they serve, die and begin again;
claims, pods, slices and nodes come, change and go; facts come late, twice, and in another order
than the objects changed.

``truth`` is what is, ``replicas`` learn of it late, ``cluster`` says what must hold all the while;
``lane`` and ``sharing`` are clusters with a second driver's devices, and with replicas that read
some pools only; ``actions`` is what may happen next.
"""
