"""What tells cards and nodes apart: what every verdict may depend on, and what is asked for."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial

from dray.api.devices import Version
from dray.api.pods import Node, PodNeeds
from dray.cel.reads import Read
from dray_allocator.devices.node_devices import Card

_INT64 = range(-(2**63), 2**63)


def of_card(card: Card) -> Hashable:
    """Driver, capacities, sharing, taints, what can't be read, and attributes that may fail every
    selector."""
    named = card.device.attributes.items()
    frail = tuple(one for one in named if one[1].__class__ is not str and _is_frail(one[1]))
    return card.id.driver, card.capacity_shape, card.device.taints, card.fault, frail


def of_node(node: Node) -> Hashable:
    """All that keeps pods away, save labels and what is used up."""
    return node.ready, node.unschedulable, node.dedicated, node.taints


def attributes(reads: Iterable[Read]) -> dict[Hashable, Callable[[Card], Hashable]]:
    """The questions behind what a selector reads; capacities always count."""
    named = [(one.domain, one.name) for one in reads if one.field == "attributes"]
    return {("attribute", *one): partial(_attribute, *one) for one in named}


def labels(needs: PodNeeds) -> dict[Hashable, Callable[[Node], Hashable]]:
    """The questions behind a pod's node selector and affinity. The name of a node is none."""
    keys = [*needs.node_selector]
    keys += [one.key for term in needs.node_terms for one in term if not one.is_field]
    return {("label", key): partial(_label, key) for key in keys}


def _attribute(domain: str, name: str, card: Card) -> Hashable:
    """Values differ by their type: 1 is not true."""
    published = card.device.attributes
    value = published.get(f"{domain}/{name}")
    own = published.get(name) if card.id.driver == domain else None
    return value.__class__, value, own.__class__, own


def _label(key: str, node: Node) -> Hashable:
    return node.labels.get(key)


def _is_frail(value: object) -> bool:
    """A version may be none, a number may have too many digits, a list may be refused, and no
    selector can read a value of an unknown kind."""
    if isinstance(value, bool):
        return False
    return (
        value is None
        or isinstance(value, Version | tuple)
        or (isinstance(value, int) and value not in _INT64)
    )
