"""A cluster that is asked about again and again: first fit, node by node, as in kube-scheduler.

The answer on a node is `allocate`'s, always. What makes it fast is which nodes need not be asked:
those of which `outlook` knows that they don't fit. And a node is shown only the slices and
holdings that could matter to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from dray.domain.devices import DeviceClass, DeviceId
from dray.domain.dra.asks import Claim, Holding
from dray.domain.dra.nodes import Node
from dray.domain.dra.results import AllocationResult
from dray.domain.dra.slices import Slice
from dray_allocator.structured.allocate import Problem, allocate
from dray_allocator.structured.errors import NodeAllocationError
from dray_allocator.structured.outlook import Outlook
from dray_allocator.structured.rules import Rules
from dray_allocator.structured.usage import usage_of

PoolKey = tuple[str, str]
"""Driver and name."""


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first node on which all claims fit, and what each of them gets."""

    node: str
    results: list[AllocationResult]


class Fleet:
    """Slices and classes as published, and what claims hold of them."""

    def __init__(
        self, slices: Iterable[Slice], classes: Iterable[DeviceClass], rules: Rules
    ) -> None:
        self._rules = rules
        self._classes = tuple(classes)
        self._pools: dict[PoolKey, list[tuple[int, Slice]]] = {}
        self._of_node: dict[str, dict[PoolKey, None]] = {}
        self._of_many: dict[PoolKey, None] = {}
        """Pools with a slice that isn't of one node, or may be seen from others."""
        for number, part in enumerate(slices):
            self._add(number, part)
        self._held: dict[PoolKey, dict[str, list[Holding]]] = {}
        """What is held, by pool and claim."""
        parts = ([part for _, part in pool] for pool in self._pools.values())
        self._outlook = Outlook(list(parts), self._classes, rules)

    def _add(self, number: int, part: Slice) -> None:
        key = part.driver, part.pool
        self._pools.setdefault(key, []).append((number, part))
        if part.reach.node:
            self._of_node.setdefault(part.reach.node, {})[key] = None
        if not part.reach.node or part.counter_sets:
            self._of_many[key] = None

    def hold(self, claim: str, holdings: Iterable[Holding]) -> None:
        """A claim, by a name of its own, holds devices now."""
        devices: dict[DeviceId, None] = {}
        for one in holdings:
            self._held.setdefault((one.driver, one.pool), {}).setdefault(claim, []).append(one)
            devices[DeviceId(one.driver, one.pool, one.device)] = None
        self._show_use(devices)

    def release(self, claim: str, pools: Iterable[PoolKey]) -> None:
        """A claim holds nothing any more of these pools."""
        devices: dict[DeviceId, None] = {}
        for key in pools:
            for one in self._held.get(key, {}).pop(claim, ()):
                devices[DeviceId(one.driver, one.pool, one.device)] = None
        self._show_use(devices)

    def problem(self, node: Node, claims: Sequence[Claim]) -> Problem:
        """The claims on one node, with all that could matter there and nothing else."""
        pools = {**self._of_node.get(node.name, {}), **self._of_many}
        numbered = sorted(chain.from_iterable(self._pools[key] for key in pools), key=_number)
        held = (one for key in pools for some in self._held.get(key, {}).values() for one in some)
        slices = [part for _, part in numbered]
        return Problem(node, slices, self._classes, list(held), claims)

    def first_fit(self, nodes: Sequence[Node], claims: Sequence[Claim]) -> FirstFit | None:
        """The first of ``nodes`` on which the claims fit; None where they fit on none.

        Raises:
            AllocationError: Kubernetes ends the attempt with an error that other nodes don't mend.
            SearchLimitError: the search takes too long.
        """
        may_fit = self._outlook.of(claims)
        asked = False
        for node in nodes:
            if not may_fit(node.name):
                continue
            asked = True
            if found := self._on(node, claims):
                return found
        # What is wrong with the claims themselves is found on any node.
        return self._on(nodes[0], claims) if nodes and not asked else None

    def _on(self, node: Node, claims: Sequence[Claim]) -> FirstFit | None:
        try:
            results = allocate(self.problem(node, claims), self._rules)
        except NodeAllocationError:
            return None
        return None if results is None else FirstFit(node.name, results)

    def _show_use(self, devices: Iterable[DeviceId]) -> None:
        for device in devices:
            held = chain.from_iterable(self._held.get((device.driver, device.pool), {}).values())
            mine = usage_of((one for one in held if one.device == device.device), self._rules)
            self._outlook.use(device, device in mine.whole, mine.consumed.get(device, {}))


def _number(entry: tuple[int, Slice]) -> int:
    return entry[0]
