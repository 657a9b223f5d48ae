"""Which nodes can't fit, told from columns of devices without asking `allocate`.

Necessary conditions of each request, device by device: the selectors take it, its taints are
tolerated, nobody holds it whole, and it has room. A node with fewer such devices than a request
wants doesn't fit. Where `allocate` might end with an error instead, or where a pool is of a form
that devices alone don't tell about (counters, several generations, reach per device …), nothing
is told and the node is asked.

Devices are of one *kind* while nothing that was asked tells them apart, so that a selector is
evaluated once per kind and not once per device.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dray.cel.errors import CelCompileError
from dray.cel.eval.program import compile
from dray.cel.reads import Read
from dray.domain.devices import DeviceClass, DeviceId, Version
from dray.domain.dra.asks import Ask, Claim
from dray.domain.dra.nodes import Node
from dray.domain.dra.slices import Slice
from dray.domain.quantities import parse_quantity
from dray_allocator.board.kinds import Kinds
from dray_allocator.fit.selectors import identity, named_reads
from dray_allocator.structured.candidates import Candidate
from dray_allocator.structured.capacity import demand
from dray_allocator.structured.errors import AllocationError
from dray_allocator.structured.pools import Pool
from dray_allocator.structured.rules import Rules
from dray_allocator.structured.selectors import Selectors
from dray_allocator.structured.taking import untolerated

Flags = npt.NDArray[np.bool_]
Amounts = npt.NDArray[np.float64]
MayFit = Callable[[str], bool]
"""Whether the node of a name may fit."""
_VERDICTS_KEPT: Final = 256
_INT64: Final = range(-(2**63), 2**63)
_ANYWHERE: Final = Node("")


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What one ask says to each kind of device."""

    suits: Flags
    doubtful: Flags
    """Where only `allocate` can say, and what it says may be an error."""
    amounts: dict[str, Amounts]
    """What is taken of each capacity, in billionths, rounded to a float, as all there is is:
    rounding keeps the order, so what fits is never taken for what does not."""


class Outlook:
    """The devices of ``pools``, each of them given as all its slices."""

    def __init__(
        self, pools: Iterable[Sequence[Slice]], classes: Iterable[DeviceClass], rules: Rules
    ) -> None:
        self._rules = rules
        self._classes = {one.name: one for one in classes}
        self._rows: dict[str, int] = {"": 0}
        """By node; 0 is for devices that all nodes reach, and for nodes with none of their own."""
        self._odd: dict[str, None] = {}
        """Nodes of which nothing is told; the empty name stands for all."""
        self._candidates: list[Candidate] = []
        rows: list[int] = []
        for parts in pools:
            if _is_plain(parts, rules):
                found = list(_candidates(parts))
                row = self._rows.setdefault(parts[0].reach.node, len(self._rows))
                self._candidates += found
                rows += [row] * len(found)
            else:
                self._odd.update(dict.fromkeys(_watchers(parts)))
        self._places = {one.id: place for place, one in enumerate(self._candidates)}
        self._row = np.array(rows, np.intp)
        self._kinds = Kinds(_base)
        self._kind = np.array([self._kinds.of(one) for one in self._candidates], np.intp)
        self._held = np.zeros(len(rows), np.bool_)
        self._left: dict[str, Amounts] = {}
        self._verdicts: dict[Hashable, _Verdict] = {}
        self._fill()

    def _fill(self) -> None:
        names = {name: None for one in self._candidates for name in one.device.capacity}
        self._left = {name: np.full(len(self._row), np.inf) for name in names}
        for place, one in enumerate(self._candidates):
            for name, capacity in one.device.capacity.items():
                self._left[name][place] = parse_quantity(capacity.value).nano

    def use(self, device: DeviceId, is_whole: bool, consumed: Mapping[str, int]) -> None:
        """A device is held: as a whole or not, and what is consumed of it, in billionths."""
        place = self._places.get(device)
        if place is None:
            return
        self._held[place] = is_whole
        for name, capacity in self._candidates[place].device.capacity.items():
            self._left[name][place] = parse_quantity(capacity.value).nano - consumed.get(name, 0)

    def of(self, claims: Sequence[Claim]) -> MayFit:
        """Which nodes may fit."""
        requests = [
            request.first_available or ((request.exactly,) if request.exactly else ())
            for claim in claims
            for request in claim.requests
        ]
        asks = [ask for alternatives in requests for ask in alternatives]
        if "" in self._odd or any(map(self._is_untold, asks)):
            return lambda node: True
        self._tell_apart(asks)
        may = np.ones(len(self._rows), np.bool_)
        doubtful = np.zeros(len(self._rows), np.bool_)
        for alternatives in requests:
            enough = np.zeros(len(self._rows), np.bool_)
            for ask in alternatives:
                verdict = self._verdict(ask)
                enough |= self._has_enough(ask, verdict)
                doubtful |= self._count(verdict.doubtful[self._kind]) > 0
            may &= enough
        found, rows = (may | doubtful | doubtful[0]).tolist(), self._rows
        return lambda node: found[rows.get(node, 0)] or node in self._odd

    def _is_untold(self, ask: Ask) -> bool:
        """Mode All fails where other devices are; a class that is missing fails everywhere."""
        return ask.mode != "ExactCount" or ask.device_class not in self._classes

    def _has_enough(self, ask: Ask, verdict: _Verdict) -> Flags:
        suiting = verdict.suits[self._kind]
        if not ask.admin_access:
            suiting &= ~self._held
            for name, amounts in verdict.amounts.items():
                suiting &= self._left[name] >= amounts[self._kind]
        needed = 1 if self._rules.repeats_within_request else ask.count
        return self._count(suiting) >= needed

    def _count(self, devices: Flags) -> npt.NDArray[np.intp]:
        """How many of these devices each node reaches."""
        counts = np.bincount(self._row[devices], minlength=len(self._rows))
        counts[1:] += counts[0]
        return counts

    def _tell_apart(self, asks: Iterable[Ask]) -> None:
        reads = {read: None for ask in asks for read in self._reads(ask) or ()}
        questions = {_question(one): _attribute(one) for one in reads if one.field == "attributes"}
        if not all(map(self._kinds.knows, questions)):
            self._kind = np.array(self._kinds.ask(questions, self._candidates), np.intp)
            self._verdicts.clear()

    def _reads(self, ask: Ask) -> list[Read] | None:
        """What the selectors read of a device; None where they may read anything, or don't
        compile."""
        found: list[Read] = []
        for text in (*self._classes[ask.device_class].selectors, *ask.selectors):
            try:
                reads = named_reads(compile(text, self._rules.language).tree)
            except CelCompileError:
                return None
            if reads is None:
                return None
            found += reads
        return found

    def _verdict(self, ask: Ask) -> _Verdict:
        amounts = tuple(sorted((ask.capacity or {}).items()))
        key = (ask.device_class, ask.selectors, ask.tolerations, amounts, ask.admin_access)
        known = self._verdicts.get(key)
        if known is None:
            if len(self._verdicts) >= _VERDICTS_KEPT:
                self._verdicts.clear()
            known = self._verdicts[key] = self._judged(ask)
        return known

    def _judged(self, ask: Ask) -> _Verdict:
        count = self._kinds.count
        verdict = _Verdict(np.zeros(count, np.bool_), np.zeros(count, np.bool_), {})
        reads = self._reads(ask)
        asked = {_question(one) for one in reads or () if one.field == "attributes"}
        if reads is None or not all(map(self._kinds.tells, asked)):
            verdict.doubtful[:] = True
            return verdict
        selectors = Selectors(_ANYWHERE, self._rules)
        for kind in range(count):
            try:
                self._judge(ask, kind, selectors, verdict)
            except AllocationError:
                verdict.doubtful[kind] = True
        return verdict

    def _judge(self, ask: Ask, kind: int, selectors: Selectors, verdict: _Verdict) -> None:
        one = self._kinds.example(kind)
        claim, of_class = Claim("", ""), self._classes[ask.device_class]
        if not selectors.take(claim, ask, of_class, one):
            return
        if self._rules.device_taints and untolerated(one.device, ask):
            return
        if self._rules.consumable_capacity:
            wanted = demand(ask.capacity, one.device.capacity, self._rules)
            if wanted is None:
                return
            for name, taken, _ in wanted.rows:
                nothing = np.full(len(verdict.suits), -np.inf)
                verdict.amounts.setdefault(name, nothing)[kind] = taken
        verdict.suits[kind] = True


def _is_plain(parts: Sequence[Slice], rules: Rules) -> bool:
    """Whether all devices of a pool, and they alone, are there for the nodes that reach it."""
    first, names = parts[0], [device.name for part in parts for device in part.devices]
    return (
        (bool(first.reach.node) or first.reach.all_nodes)
        and all(part.reach == first.reach for part in parts)
        and all(part.generation == first.generation for part in parts)
        and all(part.slice_count == len(parts) for part in parts)
        and not any(part.per_device_reach or part.counter_sets for part in parts)
        and not any(device.consumes for part in parts for device in part.devices)
        and (rules.partitionable or not any(part.per_device_reach is not None for part in parts))
        and len(set(names)) == len(names)
    )


def _watchers(parts: Sequence[Slice]) -> Iterable[str]:
    """The nodes that may see a pool; the empty name stands for all."""
    return ("" if part.counter_sets else part.reach.node for part in parts)


def _candidates(parts: Sequence[Slice]) -> Iterable[Candidate]:
    pool = Pool(parts[0].driver, parts[0].pool, tuple(parts))
    for part, device in pool.devices():
        yield Candidate(DeviceId(pool.driver, pool.name, device.name), device, part, pool)


def _base(one: Candidate) -> Hashable:
    """All that a verdict may depend on, but for attributes that selectors name."""
    device = one.device
    named = device.attributes.items()
    frail = tuple((name, identity(value)) for name, value in named if _is_frail(value))
    return (
        one.id.driver,
        tuple(device.capacity.items()),
        device.allow_multiple_allocations,
        device.taints,
        bool(device.binding_conditions),
        frail,
    )


def _is_frail(value: object) -> bool:
    """What may fail every selector: nothing, a version that is none, a number too large, a list."""
    if value is None or isinstance(value, Version | tuple):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value not in _INT64


def _question(read: Read) -> Hashable:
    return read.domain, read.name


def _attribute(read: Read) -> Callable[[Candidate], Hashable]:
    """Values are told apart with their type: 1 is not true."""
    whole = f"{read.domain}/{read.name}"

    def value(one: Candidate) -> Hashable:
        published: Mapping[str, Any] = one.device.attributes
        own = published.get(read.name) if one.id.driver == read.domain else None
        named = published.get(whole)
        return identity(named), identity(own)

    return value
