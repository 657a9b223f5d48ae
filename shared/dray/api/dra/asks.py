"""Claims and their requests: ``ResourceClaimSpec`` in full."""

from dataclasses import dataclass, field

from dray.api.constraints import Constraint
from dray.api.devices import OpaqueConfig, Taint

MOST_DEVICES = 32
"""``AllocationResultsMaxSize``: devices that one claim can hold."""


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """``DeviceToleration``, as stated: it is copied into the result."""

    key: str = ""
    operator: str = ""
    """``Exists``, or ``Equal``, which an empty one stands for."""
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it covers ``taint``; an empty effect or key covers all.

        Other than a pod's toleration, one without a key need not be ``Exists``
        (``ToleratesTaint`` of k8s.io/dynamic-resource-allocation/resourceclaim).
        """
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, or one of its alternatives. Capacities are quantities as text."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: str = "ExactCount"
    """``allocationMode``: ``ExactCount`` (of ``count`` devices) or ``All``."""
    count: int = 1
    admin_access: bool | None = None
    """Administrative access to devices, in use or not; None: not stated."""
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: dict[str, str] | None = None
    derived_attributes: tuple[str, ...] = ()
    """Names (1.37 alpha); only whether there are any is read."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: ``exactly``, or the first available of alternatives."""

    name: str
    exactly: Ask | None = None
    first_available: tuple[Ask, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim to be allocated."""

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[OpaqueConfig, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Holding:
    """A device that a claim holds, as far as that limits other claims."""

    driver: str
    pool: str
    device: str
    admin_access: bool = False
    """Administrative access: consumes nothing."""
    is_share: bool = False
    """Whether it has a share ID: other claims may hold shares of the device, too."""
    consumed: dict[str, str] | None = field(default=None)
    """Quantities as text; None: not stated."""
