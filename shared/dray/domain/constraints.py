"""What the devices of a claim must have in common, or must not."""

import msgspec


class Constraint(msgspec.Struct, frozen=True, gc=False):
    """``matchAttribute`` or ``distinctAttribute`` over requests (empty: all).

    Exactly one of both is set (``DeviceConstraint`` of resource.k8s.io/v1); a device that lacks
    the attribute does not meet it.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None
