"""The requests of claims, validated and with their DeviceClasses."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import DeviceClass
from dray.api.names import MAX_GPUS_PER_CLAIM
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.pools import ResourcePool
from dray_allocator.devices.versions import SchedulerVersion

Selects = Callable[[Claim, DeviceRequest, DeviceClass, Candidate], bool]
"""Whether the selectors of a request and of its class match a device."""
HasRoom = Callable[[DeviceRequest, Candidate], bool]
"""Whether a device has enough of the requested capacities."""


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """An exact request or a subrequest, with its DeviceClass and the number of devices."""

    request: str
    subrequest: str
    """The name of the subrequest; empty for an exact request."""
    ask: DeviceRequest
    of_class: DeviceClass
    count: int
    all_devices: tuple[Candidate, ...] | None = None
    """For allocationMode All: the devices that the request needs."""

    @property
    def name(self) -> str:
        """The name in an AllocationResult: ``main`` or ``main/sub``."""
        return f"{self.request}/{self.subrequest}" if self.subrequest else self.request

    def is_named_in(self, requests: Sequence[str]) -> bool:
        """Whether ``requests`` contains this one, or the request of this subrequest."""
        return self.request in requests or (bool(self.subrequest) and self.name in requests)


@dataclass(frozen=True, slots=True, eq=False)
class RequestAlternatives:
    """One request: its alternatives (``firstAvailable``), or the exact request as the only one."""

    alternatives: tuple[Alternative, ...]
    is_choice: bool

    @property
    def fewest(self) -> int:
        """The least number of devices over its alternatives."""
        return min(alternative.count for alternative in self.alternatives)


class Planner:
    """Validates claims and lists their requests."""

    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        pools: Sequence[ResourcePool],
        candidates: Sequence[Candidate],
        version: SchedulerVersion,
        selects: Selects,
        has_room: HasRoom,
    ) -> None:
        self._classes = classes
        self._pools = pools
        self._candidates = candidates
        self._version = version
        self._selects = selects
        self._has_room = has_room

    def plan(self, claim: Claim) -> tuple[RequestAlternatives, ...]:
        """The requests of ``claim``.

        Raises:
            AllocationError: Kubernetes reports an error for such a claim.
        """
        wanted = tuple(self._wanted(claim, request) for request in claim.spec.requests)
        fewest = sum(one.fewest for one in wanted)
        if fewest > MAX_GPUS_PER_CLAIM:
            raise AllocationError(
                f"claim {claim}: number of requested devices {fewest} exceeds the claim limit of "
                f"{MAX_GPUS_PER_CLAIM}: spread them over several claims"
            )
        for number, constraint in enumerate(claim.spec.constraints):
            is_known = constraint.match_attribute or (
                constraint.distinct_attribute and self._version.knows_distinct
            )
            if not is_known:
                raise AllocationError(
                    f"claim {claim}, constraint #{number}: empty constraint (unsupported "
                    f"constraint type?)"
                )
        return wanted

    def _wanted(self, claim: Claim, request: DeviceRequest) -> RequestAlternatives:
        is_choice = bool(request.first_available)
        where = f"claim {claim}, request {request.name}"
        if is_choice and not self._version.prioritized_list:
            raise AllocationError(
                f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled"
            )
        found: list[Alternative] = []
        for ask in request.alternatives:
            found.append(self._alternative(claim, request.name, ask, found, is_choice))
        return RequestAlternatives(tuple(found), is_choice)

    def _alternative(
        self,
        claim: Claim,
        request: str,
        ask: DeviceRequest,
        before: Sequence[Alternative],
        is_choice: bool,
    ) -> Alternative:
        where = f"claim {claim}, request {ask.name}"
        for fault in self._faults(ask):
            raise AllocationError(f"{where}: {fault}")
        of_class = self._classes.get(ask.device_class)
        if of_class is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {ask.device_class}: "
                f'deviceclass "{ask.device_class}" not found'
            )
        subrequest = ask.name if is_choice else ""
        if ask.mode == "ExactCount":
            return Alternative(request, subrequest, ask, of_class, ask.count)
        if ask.mode != "All":
            raise AllocationError(f"{where}: unsupported count mode {ask.mode}")
        selecting = ask, of_class
        if (
            self._version.second_all_is_first
            and len(before) == 1
            and before[0].all_devices is not None
        ):
            selecting = before[0].ask, before[0].of_class
        every = tuple(
            candidate
            for candidate in self._all_devices(where)
            if self._selects(claim, *selecting, candidate) and self._has_room(ask, candidate)
        )
        return Alternative(request, subrequest, ask, of_class, len(every), every)

    def _faults(self, ask: DeviceRequest) -> Iterator[str]:
        version = self._version
        if ask.capacity and not version.consumable_capacity and not version.is_simple:
            yield "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        if ask.derived_attributes and version.minor >= 37:
            yield "cannot handle request with derived attributes, the feature is disabled"
        if ask.admin_access and not version.admin_access:
            yield "admin access is requested, but the feature is disabled"
        if not ask.device_class:
            yield "missing device class name (unsupported request type?)"

    def _all_devices(self, where: str) -> Sequence[Candidate]:
        """All devices, including those in use: mode All needs every one that matches."""
        for pool in self._pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                reason = f": {pool.invalid}" if pool.invalid else ""
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool} is currently "
                    f"{state}{reason}"
                )
        return self._candidates
