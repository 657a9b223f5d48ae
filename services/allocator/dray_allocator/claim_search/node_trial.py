"""What becomes of a pod's claims on one node."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dray.api.claims import Allocation, Claim, DeviceRequest
from dray.api.devices import DeviceClass, DeviceId
from dray.api.pods import Node
from dray_allocator.claim_search.pod_search import PodSearch, worth
from dray_allocator.claim_search.visible_devices import VisibleDevices
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError, NodeAllocationError, SearchLimitError
from dray_allocator.devices.ordered_search import Key, worst_first
from dray_allocator.devices.selectors import DeviceSelectors
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.state.state import AllocatorState

Rank = tuple[int, tuple[Key, ...]]
"""How far down their lists of alternatives the claims had to go, and what the devices are worth
to a preference; the lowest is best."""


@dataclass(frozen=True, slots=True)
class Feasibility:
    """What came of a node, and of every one like it."""

    rank: Rank | None = None
    """None: the claims don't fit."""
    is_error: bool = False
    """Whether it can't be decided there."""
    ends_attempt: bool = False
    """Whether kube-scheduler then looks at no other node."""
    is_hard: bool = False
    """Whether the search there took too long."""


@dataclass(frozen=True, slots=True)
class NodeTrial:
    """What came of one node."""

    verdict: Feasibility
    results: tuple[Allocation, ...] = ()
    error: str = ""
    looks: int = 0
    """Devices looked at."""


def tried(
    state: AllocatorState, asked: PodSearch, node: Node, seen: VisibleDevices, most_looks: int
) -> NodeTrial:
    """Look for devices on a node that takes the pod, its devices aside."""
    classes = tuple(state.facts.classes.values())
    problem = Problem(node, seen.slices, classes, seen.usage(asked.rules), asked.claims)
    is_strict = asked.load is None
    selectors = None if is_strict else LenientSelectors(state, node, asked.rules)
    budget = SearchBudget(most_looks)

    def ended(verdict: Feasibility, error: str = "") -> NodeTrial:
        return NodeTrial(verdict, (), error, budget.most - budget.left)

    try:
        found = allocate(
            problem, asked.rules, budget=budget, selectors=selectors, stated=asked.stated()
        )
    except SearchLimitError:
        return ended(Feasibility(is_hard=True))
    except NodeAllocationError as error:
        return ended(Feasibility(is_error=True), str(error))
    except AllocationError as error:
        return ended(Feasibility(is_error=True, ends_attempt=is_strict), str(error))
    if found is None:
        return ended(Feasibility())
    verdict = Feasibility(_rank(asked, found, seen))
    return NodeTrial(verdict, tuple(found), "", budget.most - budget.left)


def _rank(asked: PodSearch, results: Sequence[Allocation], seen: VisibleDevices) -> Rank:
    steps = 0
    for claim, result in zip(asked.claims, results, strict=True):
        taken = {device.request for device in result.devices}
        for request in claim.spec.requests:
            names = [f"{request.name}/{one.name}" for one in request.first_available]
            steps += next((at for at, name in enumerate(names) if name in taken), 0)
    return steps, worst_first(_worths(asked, results, seen)) if asked.preferences else ()


def _worths(asked: PodSearch, results: Sequence[Allocation], seen: VisibleDevices) -> Iterator[Key]:
    devices = {
        DeviceId(part.driver, part.pool, device.name): device
        for part in seen.slices
        for device in part.devices
    }
    for preferences, result in zip(asked.preferences, results, strict=True):
        liked = dict(preferences)
        for one in result.devices:
            yield worth(liked.get(one.request.partition("/")[0], ()), devices[one.id])


class LenientSelectors(DeviceSelectors):
    """A device on which a selector can't be evaluated does not match, and others may. What the
    table knows of a device is not evaluated again."""

    def __init__(self, state: AllocatorState, node: Node, rules: SchedulerVersion) -> None:
        super().__init__(node, rules)
        self._state = state

    def _verdict(
        self, claim: Claim, ask: DeviceRequest, of_class: DeviceClass, candidate: Candidate
    ) -> bool:
        card = self._state.published.card(candidate.id)
        if card is not None and not card.fault:
            return self._state.selectors.matches((*of_class.selectors, *ask.selectors), card)
        try:
            return super()._verdict(claim, ask, of_class, candidate)
        except AllocationError:
            return False
