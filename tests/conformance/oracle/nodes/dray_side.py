"""dray's answers, along its whole way: objects, the picture's facts, then the allocator's fit."""

import re
from typing import Any, Final

from dray.api.pods import Node
from dray.kube.convert import class_from, pod_from
from dray.kube.ports import NODES, PODS, Changed
from dray.messages.facts import NodeObserved
from dray_allocator.devices.usage import NOTHING
from dray_allocator.nodes.predicates import failures, fits
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of

Json = dict[str, Any]

_NAMES: Final = (
    (re.compile(r"not enough free pod slots .*"), "pods"),
    (re.compile(r"host port .* is in use"), "host ports"),
    (re.compile(r"not enough free (\S+) \(.* asked\)"), r"\1"),
    (re.compile(r"unschedulable"), "unschedulable"),
    (re.compile(r"(node selector|node affinity) does not match"), r"\1"),
    (re.compile(r"node taint .* is not tolerated"), "taints"),
)
"""Reasons, and what the other side calls them."""


def answer(question: Json, stored: Json) -> dict[str, list[str]]:
    """What keeps the pod off each node, by predicate; nothing if it fits.

    ``stored`` has the question's ``pod`` and ``pods`` as an API server keeps them.
    """
    picture = ObjectCache()
    for resource, objects in ((NODES, question["nodes"]), (PODS, stored.get("pods", ()))):
        for obj in objects:
            picture.apply(resource, Changed(obj))
    if picture.unreadable:
        raise ValueError(f"{question['id']}: {picture.unreadable}")
    needs = pod_from(stored["pod"]).needs
    given = {name for obj in question["classes"] for name in class_from(obj).stands_for}
    found = {}
    for obj in question["nodes"]:
        node = _node(picture, obj["metadata"]["name"])
        failed = list(failures(needs, node, NOTHING, given=given))
        if fits(needs, node, NOTHING, given=given) == bool(failed):
            raise ValueError(f"{question['id']}: {node.name} fits, and {failed} fail")
        found[node.name] = [_named(reason) for reason in failed]
    return found


def _node(picture: ObjectCache, name: str) -> Node:
    fact = fact_of(picture, FactKey("node", name), NodeHistory())
    assert isinstance(fact, NodeObserved)
    return fact.node


def _named(reason: str) -> str:
    for pattern, name in _NAMES:
        if match := pattern.fullmatch(reason):
            return match.expand(name)
    return reason
