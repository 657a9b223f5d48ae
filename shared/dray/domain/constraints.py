"""What the devices of a claim must have in common, or must not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constraint:
    """``matchAttribute`` or ``distinctAttribute`` over requests (empty: all).

    Exactly one of both is set (``DeviceConstraint`` of resource.k8s.io/v1); a device that lacks
    the attribute does not meet it.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None
