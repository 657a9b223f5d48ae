"""The resources that must be free before any pod of a group starts: ``minResources``."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from dray.api.groups import PodGroup
from dray.api.names import DEVICE_CLASS, GPU_RESOURCE
from dray.api.quantities import NANO, InvalidQuantityError, Quantity, parse_quantity
from dray.reasons import Reason
from dray_allocator.gangs.slots import card_totals, free_capacity
from dray_allocator.nodes.columns import Whole
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

_DEVICES = "deviceclass/"
_DIMENSION = f".{_DEVICES}"
_ROUNDED: Final = 1 + 1e-9
_QUOTAS = ("count/", "requests.", "limits.")
"""How names of quotas begin. Volcano writes amounts under quota names and under plain names; its
scheduler reads only the plain names."""


class Shortage(NamedTuple):
    """A resource that a group asks for and that is short."""

    resource: str
    asked_nano: int
    reason: Reason


def missing_resources(
    state: AllocatorState, domain: SchedulingDomain, group: PodGroup
) -> tuple[Shortage, ...]:
    """The resources that the pool's nodes lack for the group, in the order of their names."""
    return tuple(_missing(state, domain, group)) if group.min_resources else ()


def _missing(
    state: AllocatorState, domain: SchedulingDomain, group: PodGroup
) -> Iterator[Shortage]:
    for name, text in sorted(group.min_resources.items()):
        if name.startswith(_QUOTAS):
            continue
        try:
            asked = parse_quantity(text).nano
        except InvalidQuantityError:
            continue  # The API server refuses such amounts.
        free = _free_nano(state, domain, name)
        if free < asked:
            what = f"PodGroup {group.key} asks for {name} {text} (minResources)"
            detail = f"the nodes of the pool have {Quantity(free)} free"
            yield Shortage(name, asked, Reason("group", what, 0, 0, "group", detail))


class FreeResources:
    """Upper bounds of the free resources of a pool's nodes, for many groups at once. Groups may
    name any resource, and each name would need a look at all nodes."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain) -> None:
        self._state = state
        self._domain = domain
        self._known: dict[str, int] = {}
        self._named: dict[str, None] | None = None
        """The names of the nodes' resources; None if they were not read yet."""

    def most_nano(self, name: str) -> int:
        """An upper bound of the free amount of a resource, in billionths."""
        if name not in self._known:
            self._known[name] = self._most_nano(name)
        return self._known[name]

    def _most_nano(self, name: str) -> int:
        table = self._state.tables.of(self._domain.name)
        match name:
            case "cpu":
                return _sum_of(table.cpu_milli[table.present]) * (NANO // 1000)
            case "memory":
                return _sum_of(table.memory_bytes[table.present]) * NANO
            case "pods":
                return _sum_of(table.pods[table.present]) * NANO
            case _ if name in (GPU_RESOURCE, _DEVICES + DEVICE_CLASS):
                return int((table.has_card & (table.load == 0)).sum()) * NANO
        if _DIMENSION in name:
            dimension, _, device_class = name.partition(_DIMENSION)
            keys = dict.fromkeys(key for one in card_totals(table) for key in one)
            is_drays = device_class == DEVICE_CLASS
            found = [key for key in keys if is_drays and _is_named(key, dimension)]
            return int(sum(free_capacity(table, key) for key in found) * _ROUNDED) + 1
        return _free_nano(self._state, self._domain, name) if name in self._names() else 0

    def _names(self) -> dict[str, None]:
        if self._named is None:
            self._named = {}
            for node in self._state.facts.served_nodes(self._domain.name):
                self._named |= dict.fromkeys(self._state.facts.nodes[node].node.resources)
        return self._named


def capacity_of_cards(name: str) -> str:
    """The name in ``minResources`` of a capacity of dray's devices."""
    return f"{name}{_DIMENSION}{DEVICE_CLASS}"


def _is_named(capacity: str, dimension: str) -> bool:
    """Whether this name in ``minResources`` means a capacity. It may omit the capacity's domain."""
    return dimension in (capacity, capacity.rpartition("/")[2])


def _sum_of(column: Whole) -> int:
    """The sum of the positive values, or a little more: it is rounded up."""
    return int(np.maximum(column, 0).sum(dtype=np.float64) * _ROUNDED) + 1


def _free_nano(state: AllocatorState, domain: SchedulingDomain, name: str) -> int:
    """The free amount of a resource on all nodes of the pool, in billionths."""
    if name.startswith(_DEVICES):
        return _free_devices(state, domain, name.removeprefix(_DEVICES))
    if name == GPU_RESOURCE:
        return _free_devices(state, domain, DEVICE_CLASS)
    if _DIMENSION in name:
        dimension, _, device_class = name.partition(_DIMENSION)
        return _free_capacity(state, domain, dimension, device_class)
    total = 0
    for node in state.facts.served_nodes(domain.name):
        one, assumed = state.facts.nodes[node].node, state.assumed_pods.on(node)
        match name:
            case "cpu":
                total += (
                    max(0, one.cpu_milli - one.used_cpu_milli - assumed.cpu_milli) * NANO // 1000
                )
            case "memory":
                used = one.used_memory_bytes + assumed.memory_bytes
                total += max(0, one.memory_bytes - used) * NANO
            case "pods":
                total += max(0, one.pods - one.used_pods - assumed.pods) * NANO
            case _:
                used = one.used_resources.get(name, 0) + assumed.resources.get(name, 0)
                total += max(0, one.resources.get(name, 0) - used) * NANO
    return total


def _free_devices(state: AllocatorState, domain: SchedulingDomain, device_class: str) -> int:
    """Devices of dray's class that nobody uses."""
    if device_class != DEVICE_CLASS:
        return 0
    cards = (
        card
        for node in state.facts.served_nodes(domain.name)
        for card in state.published.of(node).cards
    )
    return sum(not state.device_usage.of(card.id).shares for card in cards) * NANO


def _free_capacity(
    state: AllocatorState, domain: SchedulingDomain, dimension: str, device_class: str
) -> int:
    """How much of a capacity is left on dray's devices."""
    if device_class != DEVICE_CLASS:
        return 0
    total = 0
    for node in state.facts.served_nodes(domain.name):
        for card in state.published.of(node).cards:
            used = state.device_usage.of(card.id).used
            for key, amount in card.shape.totals.items():
                if _is_named(key, dimension):
                    total += max(0, amount - used.get(key, 0))
    return total
