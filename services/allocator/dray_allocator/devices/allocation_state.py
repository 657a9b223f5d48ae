"""Taking one more device: everything that is checked and changed by it, and how that is undone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dray.api.claims import Claim, DeviceRequest, DeviceToleration
from dray.api.devices import Taint
from dray_allocator.devices.amounts import Amount
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.capacity import Demand, DemandOf
from dray_allocator.devices.constraints import Tracked, tracked
from dray_allocator.devices.counters import Counters
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.requirements import Alternative
from dray_allocator.devices.usage import Usage
from dray_allocator.devices.versions import SchedulerVersion

Undo = Callable[[], None]
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """One device of an allocation under way."""

    alternative: Alternative
    candidate: Candidate
    is_share: bool
    consumed: Mapping[str, Amount] = field(default_factory=dict)


class AllocationState:
    """What is in use by the claims being allocated, besides what was in use before.

    Changes are undone in the reverse order of their making; devices and amounts then stand as
    before.
    """

    def __init__(
        self, claims: Sequence[Claim], usage: Usage, rules: SchedulerVersion, demand_of: DemandOf
    ) -> None:
        self._usage = usage
        self._demand_of = demand_of
        self._rules = rules
        self._devices: dict[Candidate, DeviceState] = {}
        self._demands: dict[tuple[int, Candidate], Demand | None] = {}
        self._counters = Counters(usage.holds, rules)
        self._claims = claims
        self._constraints: list[list[Tracked]] = [
            [tracked(constraint, rules) for constraint in claim.spec.constraints]
            for claim in claims
        ]
        self.taken: list[list[Taken]] = [[] for _ in claims]
        """Per claim, in the order of taking."""

    def is_free(self, claim: int, ask: DeviceRequest, candidate: Candidate) -> bool:
        """Whether nothing holds the device as a whole; for admin access, nothing in the claim."""
        device_state = self._device(candidate)
        if ask.admin_access:
            return claim not in device_state.picked
        return not device_state.picked and not device_state.is_held

    def has_room(self, ask: DeviceRequest, candidate: Candidate, *, now: bool = True) -> bool:
        """Whether the device has the capacities asked for: of what is left now, or ever.

        Raises:
            AllocationError: an amount that Kubernetes refuses to reckon with.
        """
        if not self._rules.consumable_capacity:
            return True
        wanted = self._demand(ask, candidate)
        if wanted is None:
            return False
        return wanted.fits_beside(self._device(candidate).consumed if now else {})

    def take(
        self, claim: int, alternative: Alternative, candidate: Candidate, *, must: bool
    ) -> Undo | None:
        """Take a device that the selectors took; None where it can't be had.

        Without ``must``, `is_free` and `has_room` were asked before; with it, mode All depends on
        this very device.

        Raises:
            AllocationError: a constraint keeps away a device that all depends on, or an amount
                that Kubernetes refuses to reckon with.
        """
        undo: list[Undo] = []
        if self._try(_Attempt(claim, alternative, candidate, must, undo)):
            return lambda: _undo(undo)
        _undo(undo)
        return None

    def _try(self, attempt: "_Attempt") -> bool:
        """The checks in upstream's order, which decides what is an error and what no fit."""
        device, ask = attempt.candidate.device, attempt.alternative.ask
        is_share = device.allow_multiple_allocations and self._rules.consumable_capacity
        if attempt.must:
            is_watched_share = is_share and ask.admin_access
            if not is_watched_share and not self.is_free(attempt.claim, ask, attempt.candidate):
                return False
        if not self._take_counters(attempt, is_share):
            return False
        if self._rules.device_taints and untolerated(device.taints, ask.tolerations):
            return False
        if not self._meet_constraints(attempt):
            return False
        if attempt.must and not self.has_room(ask, attempt.candidate):
            return False
        self._enter(attempt, is_share)
        return True

    def _take_counters(self, attempt: "_Attempt", is_share: bool) -> bool:
        """The counters of a shared device are taken once, with its first share."""
        candidate = attempt.candidate
        if not candidate.device.consumes:
            return True
        if not self._rules.partitionable:
            return False
        if is_share and self._counts_as_shared(candidate):
            return True
        if not self._counters.take(candidate):
            return False
        attempt.undo.append(lambda: self._counters.give_back(candidate))
        return True

    def _meet_constraints(self, attempt: "_Attempt") -> bool:
        alternative, candidate = attempt.alternative, attempt.candidate
        for constraint in self._constraints[attempt.claim]:
            if constraint.add(alternative, candidate):
                attempt.undo.append(partial(constraint.remove, alternative, candidate))
                continue
            if attempt.must:
                raise AllocationError(
                    f"claim {self._claims[attempt.claim]}, request {alternative.ask.name}: cannot "
                    f"add device {candidate.id} because a claim constraint would not be satisfied"
                )
            return False
        return True

    def _enter(self, attempt: "_Attempt", is_share: bool) -> None:
        """Write down that the device is taken. Checked before: nothing is refused here."""
        claim, candidate = attempt.claim, attempt.candidate
        device_state = self._device(candidate)
        amounts: Mapping[str, Amount] = {}
        if is_share:
            wanted = self._demand(attempt.alternative.ask, candidate)
            amounts = wanted.amounts if wanted else {}
            device_state.share(wanted, 1)
            attempt.undo.append(lambda: device_state.share(wanted, -1))
        else:
            device_state.picked.add(claim)
            attempt.undo.append(lambda: device_state.picked.discard(claim))
        taken = self.taken[claim]
        taken.append(Taken(attempt.alternative, candidate, is_share, amounts))
        attempt.undo.append(lambda: _drop(taken))

    def _counts_as_shared(self, candidate: Candidate) -> bool:
        if candidate.id in self._usage.consumed or self._device(candidate).shares:
            return True
        return not self._rules.bare_share_frees_counters and candidate.id in self._usage.shared

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
    """How one device stands: what held it before, and what the attempt does with it."""

    is_held: bool
    """By another claim, as a whole."""
    consumed: dict[str, int]
    """By all shares, in billionths."""
    picked: set[int] = field(default_factory=set)
    """Claims of the attempt that have it as a whole."""
    shares: int = 0
    """Of the attempt."""

    def share(self, wanted: Demand | None, sign: int) -> None:
        """Add a share, or with -1 take it back."""
        self.shares += sign
        for name, taken in wanted.nano.items() if wanted else ():
            self.consumed[name] = self.consumed.get(name, 0) + sign * taken


@dataclass(slots=True, eq=False)
class _Attempt:
    """What is to be taken for whom, and the changes made for it so far."""

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
    """A taint of a device that keeps a request away; other effects are only reported."""
    for taint in taints:
        if taint.effect in _KEEPS_AWAY and not any(one.tolerates(taint) for one in tolerations):
            return taint
    return None
