"""Constraints between the devices of a claim."""

import msgspec


class Constraint(msgspec.Struct, frozen=True, gc=False):
    """``matchAttribute`` or ``distinctAttribute`` over requests (empty: all).

    Exactly one of the two is set (``DeviceConstraint`` of resource.k8s.io/v1). A device that lacks
    the attribute does not meet the constraint.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None
