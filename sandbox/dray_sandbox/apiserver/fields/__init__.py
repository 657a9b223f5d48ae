"""The fields of the built-in kinds that this server reads strictly.

``devices``, `resource.k8s.io/v1`, is complete: its fields are what dray lives on. ``core`` kinds
are open: known quantities are made canonical, everything else is kept as it was sent. ``parts``
are what kinds of both have.
"""
