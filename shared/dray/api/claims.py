"""Claims, their allocations, and the attempts to allocate devices to them."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dray.api.constraints import Constraint as Constraint
from dray.api.devices import DeviceId, OpaqueConfig, Taint
from dray.api.fields import always_written
from dray.api.nodes import NodeSelector

EPOCH_SPAN = 1_000_000
"""Attempts of epoch *e* are ``e * EPOCH_SPAN + 1`` and up, so that attempts of a claim only
grow and voiding the last attempt of an epoch voids the whole epoch."""


def first_attempt(epoch: int) -> int:
    """The lowest attempt of ``epoch``."""
    return epoch * EPOCH_SPAN + 1


def last_attempt_before(epoch: int) -> int:
    """The attempt whose voiding voids everything decided before ``epoch``."""
    return epoch * EPOCH_SPAN


class DeviceToleration(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``DeviceToleration``, as stated: it is copied into the result."""

    key: str = always_written("")
    operator: str = always_written("")
    """``Exists`` or ``Equal``; empty means ``Equal``."""
    value: str = always_written("")
    effect: str = always_written("")
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether it covers ``taint``; an empty effect or key covers all.

        Unlike a pod's toleration, one without a key need not be ``Exists``
        (``ToleratesTaint`` of k8s.io/dynamic-resource-allocation/resourceclaim).
        """
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


class DeviceRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One entry of ``spec.devices.requests``: an exact request, or a list of alternatives
    (``DeviceSubRequest``), which are also requests."""

    name: str
    device_class: str
    """Empty if the request lists alternatives, or if dray does not know its kind."""
    selectors: tuple[str, ...] = always_written(())
    mode: str = always_written("ExactCount")
    """``allocationMode``: ``ExactCount`` (of ``count`` devices) or ``All``."""
    count: int = always_written(1)
    capacity: dict[str, str] = always_written({})
    """``capacity.requests``: quantities as text, keyed as the device publishes them."""
    tolerations: tuple[DeviceToleration, ...] = always_written(())
    admin_access: bool = always_written(False)
    """Administrative access to devices, whether in use or not. It consumes nothing."""
    derived_attributes: tuple[str, ...] = ()
    """Names (1.37 alpha). dray only reads whether there are any."""
    first_available: tuple["DeviceRequest", ...] = ()
    """Alternatives; the first one that is available is used."""

    @property
    def alternatives(self) -> tuple["DeviceRequest", ...]:
        """Its alternatives; if it lists none, the request itself."""
        return self.first_available or (self,)


UNREAD: Final = "can't be read: "
"""Prefix of the reason why a claim's spec is unknown."""

TOO_LARGE: Final = "too large for the bus: "
"""Prefix of the reason why an object's fact omits the parts that make it too large."""


class ClaimSpec(msgspec.Struct, frozen=True, gc=False):
    """``ResourceClaimSpec``. ``unsupported`` names what dray can't allocate."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[OpaqueConfig, ...] = ()
    unsupported: tuple[str, ...] = ()
    in_full: tuple[dict[str, Any], ...] = ()
    """Only in facts of earlier releases; empty once the fact was read
    (``dray.messages.earlier``)."""

    def alternatives(self) -> Iterator[tuple[DeviceRequest, DeviceRequest]]:
        """Every request, with itself or each of its alternatives."""
        for request in self.requests:
            for one in request.alternatives:
                yield request, one

    @property
    def unreadable(self) -> str:
        """Why the claim can't be read; empty if it can."""
        return self._reason(UNREAD)

    @property
    def too_large(self) -> str:
        """Why the bus has only the claim's allocation; empty if it has the whole claim."""
        return self._reason(TOO_LARGE)

    def _reason(self, prefix: str) -> str:
        return next((why for why in self.unsupported if why.startswith(prefix)), "")


class DeviceTerms(msgspec.Struct, frozen=True, gc=False):
    """The terms of a device's allocation, copied from request and slice."""

    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    """Conditions of the device that must be true before the pod is bound."""
    binding_failure_conditions: tuple[str, ...] = ()
    """Conditions of the device that end the attempt if one is true."""


class AllocatedDevice(msgspec.Struct, frozen=True, gc=False):
    """One ``DeviceRequestAllocationResult``. Quantities as text."""

    request: str
    id: DeviceId
    share_id: str | None = None
    """UUID of one share of a device that allows several; None if the whole device is held."""
    consumed: dict[str, str] = msgspec.field(default_factory=dict)
    """``consumedCapacity``, after the device's request policy has rounded the request."""
    admin_access: bool = False
    """Administrative access: consumes nothing."""
    terms: DeviceTerms | None = None
    """None: it has no terms."""


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """The devices that a claim holds. ``node`` is empty unless exactly one node may use them."""

    devices: tuple[AllocatedDevice, ...]
    node: str = ""
    config: tuple[OpaqueConfig, ...] = ()
    selector: NodeSelector | None = None
    """The nodes that may use it, if ``node`` is empty. If both are empty, all nodes may use it."""

    @property
    def devices_in_use(self) -> list[DeviceId]:
        """The devices that it uses. One may occur twice."""
        return [share.id for share in self.devices if not share.admin_access]

    def shares_of(self, device: DeviceId) -> list[AllocatedDevice]:
        """Its shares of a device; administrative access takes none."""
        return [share for share in self.devices if share.id == device and not share.admin_access]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim as last observed."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    pool: str
    """The requested GPUPool (label of derived templates), or empty."""
    spec: ClaimSpec
    pod_uid: str = ""
    """The owner, if the claim was created from a template."""
    pod_name: str = ""
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()
    """UIDs of the pods that may use the allocation."""
    decision: int = 0
    """Highest attempt whose execution has begun (annotation)."""
    void: int = 0
    """Attempts up to this one must never be committed (annotation)."""
    deleting: bool = False
    created_unix_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def marked(self) -> int:
        """The highest attempt in its annotations, begun or void."""
        return max(self.decision, self.void)


class GivenUp(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Attempts of a claim that were abandoned because Kubernetes refused their writes
    (docs/adr/0030)."""

    attempt: int
    """Attempts up to this one are not executed any more."""
    void: int = 0
    """Attempts up to this one can't have been committed: they count as void, even if the claim's
    annotation does not say so."""
    revision: int = 0
    """resourceVersion of the claim when they were abandoned."""
    message: str = ""
    """The API server's error. It is kept until the claim is decided again, after a change or after
    some time."""
