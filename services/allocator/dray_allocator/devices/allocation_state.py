"""Allocate one more device during the search, with all checks, and undo it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dray.api.claims import Claim, DeviceRequest, DeviceToleration
from dray.api.devices import Taint
from dray_allocator.devices.amounts import Amount
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.capacity import Demand, DemandOf
from dray_allocator.devices.constraints import ConstraintState, constraint_state
from dray_allocator.devices.counters import Counters
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.requirements import Alternative
from dray_allocator.devices.versions import SchedulerVersion

Undo = Callable[[], None]
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, eq=False)
class TakenDevice:
    """A device that the search has allocated so far."""

    alternative: Alternative
    candidate: Candidate
    is_share: bool
    consumed: Mapping[str, Amount] = field(default_factory=dict)


class AllocationState:
    """The devices that the claims of the attempt use, in addition to the usage before it.

    Changes are undone in reverse order.
    """

    def __init__(
        self,
        claims: Sequence[Claim],
        usage: DevicesInUse,
        version: SchedulerVersion,
        demand_of: DemandOf,
    ) -> None:
        self._usage = usage
        self._demand_of = demand_of
        self._version = version
        self._devices: dict[Candidate, DeviceState] = {}
        self._demands: dict[tuple[int, Candidate], Demand | None] = {}
        self._counters = Counters(usage.holds, version)
        self._claims = claims
        self._constraints: list[list[ConstraintState]] = [
            [constraint_state(constraint, version) for constraint in claim.spec.constraints]
            for claim in claims
        ]
        self.taken: list[list[TakenDevice]] = [[] for _ in claims]
        """Per claim, in the order of allocation."""

    def is_free(self, claim: int, ask: DeviceRequest, candidate: Candidate) -> bool:
        """Whether no claim uses the whole device; for admin access, whether this claim does not."""
        device_state = self._device(candidate)
        if ask.admin_access:
            return claim not in device_state.claims
        return not device_state.claims and not device_state.is_held

    def has_room(self, ask: DeviceRequest, candidate: Candidate, *, now: bool = True) -> bool:
        """Whether the device has enough of the requested capacities: left now, or in total.

        Raises:
            AllocationError: an amount that Kubernetes reports as an error.
        """
        if not self._version.consumable_capacity:
            return True
        wanted = self._demand(ask, candidate)
        if wanted is None:
            return False
        return wanted.fits_with(self._device(candidate).consumed if now else {})

    def take(
        self, claim: int, alternative: Alternative, candidate: Candidate, *, must: bool
    ) -> Undo | None:
        """Allocate a device that the selectors match; None if it is not available.

        Without ``must``, the caller has checked `is_free` and `has_room`. With ``must``, the
        request has allocationMode All and needs this device.

        Raises:
            AllocationError: a constraint excludes a device of mode All, or an amount that
                Kubernetes reports as an error.
        """
        undo: list[Undo] = []
        if self._allocate(_Step(claim, alternative, candidate, must, undo)):
            return lambda: _undo(undo)
        _undo(undo)
        return None

    def _allocate(self, step: "_Step") -> bool:
        """The checks, in upstream's order: it decides if the result is an error or no fit."""
        device, ask = step.candidate.device, step.alternative.ask
        is_share = device.allow_multiple_allocations and self._version.consumable_capacity
        if step.must:
            is_watched_share = is_share and ask.admin_access
            if not is_watched_share and not self.is_free(step.claim, ask, step.candidate):
                return False
        if not self._take_counters(step, is_share):
            return False
        if self._version.device_taints and untolerated(device.taints, ask.tolerations):
            return False
        if not self._meet_constraints(step):
            return False
        if step.must and not self.has_room(ask, step.candidate):
            return False
        self._record(step, is_share)
        return True

    def _take_counters(self, step: "_Step", is_share: bool) -> bool:
        """Consume counters. Those of a shared device are consumed once, with its first share."""
        candidate = step.candidate
        if not candidate.device.consumes:
            return True
        if not self._version.partitionable:
            return False
        if is_share and self._counts_as_shared(candidate):
            return True
        if not self._counters.take(candidate):
            return False
        step.undo.append(lambda: self._counters.give_back(candidate))
        return True

    def _meet_constraints(self, step: "_Step") -> bool:
        alternative, candidate = step.alternative, step.candidate
        for constraint in self._constraints[step.claim]:
            if constraint.add(alternative, candidate):
                step.undo.append(partial(constraint.remove, alternative, candidate))
                continue
            if step.must:
                raise AllocationError(
                    f"claim {self._claims[step.claim]}, request {alternative.ask.name}: cannot "
                    f"add device {candidate.id} because a claim constraint would not be satisfied"
                )
            return False
        return True

    def _record(self, step: "_Step", is_share: bool) -> None:
        """Record the device as allocated, after all checks."""
        claim, candidate = step.claim, step.candidate
        device_state = self._device(candidate)
        amounts: Mapping[str, Amount] = {}
        if is_share:
            wanted = self._demand(step.alternative.ask, candidate)
            amounts = wanted.amounts if wanted else {}
            device_state.share(wanted, 1)
            step.undo.append(lambda: device_state.share(wanted, -1))
        else:
            device_state.claims.add(claim)
            step.undo.append(lambda: device_state.claims.discard(claim))
        taken = self.taken[claim]
        taken.append(TakenDevice(step.alternative, candidate, is_share, amounts))
        step.undo.append(lambda: _drop(taken))

    def _counts_as_shared(self, candidate: Candidate) -> bool:
        if candidate.id in self._usage.consumed or self._device(candidate).shares:
            return True
        return not self._version.bare_share_frees_counters and candidate.id in self._usage.shared

    def _demand(self, ask: DeviceRequest, candidate: Candidate) -> Demand | None:
        key = id(ask), candidate
        if key not in self._demands:
            self._demands[key] = self._demand_of(ask, candidate)
        return self._demands[key]

    def _device(self, candidate: Candidate) -> "DeviceState":
        found = self._devices.get(candidate)
        if found is None:
            used = self._usage.consumed.get(candidate.id, {})
            found = DeviceState(candidate.id in self._usage.whole, dict(used))
            self._devices[candidate] = found
        return found


@dataclass(slots=True, eq=False)
class DeviceState:
    """The use of one device, before the attempt and by it."""

    is_held: bool
    """Whether another claim uses the whole device."""
    consumed: dict[str, int]
    """The capacities that all shares consume, in billionths."""
    claims: set[int] = field(default_factory=set)
    """The claims of the attempt that use the whole device."""
    shares: int = 0
    """The shares that the attempt allocated."""

    def share(self, wanted: Demand | None, sign: int) -> None:
        """Add a share, or remove it if ``sign`` is -1."""
        self.shares += sign
        for name, taken in wanted.nano.items() if wanted else ():
            self.consumed[name] = self.consumed.get(name, 0) + sign * taken


@dataclass(slots=True, eq=False)
class _Step:
    """A device to allocate, and the changes made for it so far."""

    claim: int
    alternative: Alternative
    candidate: Candidate
    must: bool
    undo: list[Undo]


def _undo(changes: list[Undo]) -> None:
    while changes:
        changes.pop()()


def _drop(entries: list[Any]) -> None:
    entries.pop()


def untolerated(taints: Iterable[Taint], tolerations: Sequence[DeviceToleration]) -> Taint | None:
    """The first taint of a device that a request does not tolerate. Taints with effect None don't
    count."""
    for taint in taints:
        if taint.effect in _BLOCKING_EFFECTS and not any(
            one.tolerates(taint) for one in tolerations
        ):
            return taint
    return None
