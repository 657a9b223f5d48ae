"""The properties that distinguish kinds of cards and nodes."""

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache, partial
from typing import Final

from dray.api.devices import Version
from dray.api.pods import Node, PodNeeds
from dray.cel.reads import Read
from dray_allocator.devices.published_devices import Card

_MOST_ATTRIBUTES: Final = 4096
_INT64 = range(-(2**63), 2**63)


def of_card(card: Card) -> Hashable:
    """The properties of a card that always count: driver, capacities, sharing, taints, fields that
    can't be parsed, and attributes on which every selector may fail."""
    device, shape = card.device, card.shape
    named = device.attributes.items()
    failing = tuple([one for one in named if one[1].__class__ is not str and _may_fail(one[1])])
    return card.id.driver, shape.number, device.taints, shape.fault, failing


def of_node(node: Node) -> Hashable:
    """The properties of a node that always count: everything that filters read, except labels and
    resources."""
    return node.ready, node.unschedulable, node.dedicated, node.taints


def attributes(reads: Iterable[Read]) -> dict[Hashable, Callable[[Card], Hashable]]:
    """The properties for the attributes that selectors read. Capacities always count."""
    return {
        ("attribute", one.domain, one.name): _attribute(one.domain, one.name)
        for one in reads
        if one.field == "attributes"
    }


def labels(needs: PodNeeds) -> dict[Hashable, Callable[[Node], Hashable]]:
    """The properties for the labels in a pod's node selector and affinity. The name of a node is no
    property."""
    keys = [*needs.node_selector]
    keys += [one.key for term in needs.node_terms for one in term if not one.is_field]
    return {("label", key): partial(_label, key) for key in keys}


@lru_cache(maxsize=_MOST_ATTRIBUTES)
def _attribute(domain: str, name: str) -> Callable[[Card], Hashable]:
    """Values differ by their type: 1 is not true."""
    qualified = f"{domain}/{name}"

    def read(card: Card) -> Hashable:
        published = card.device.attributes
        value = published.get(qualified)
        own = published.get(name) if card.id.driver == domain else None
        return value.__class__, value, own.__class__, own

    return read


def _label(key: str, node: Node) -> Hashable:
    return node.labels.get(key)


def _may_fail(value: object) -> bool:
    """Whether a selector may fail on a value: an invalid version, a number beyond int64, a list, or
    a value of an unknown type."""
    if isinstance(value, bool):
        return False
    return (
        value is None
        or isinstance(value, Version | tuple)
        or (isinstance(value, int) and value not in _INT64)
    )
