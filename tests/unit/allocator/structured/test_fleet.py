"""First fit over a fleet: the same as asking node by node, with everything in sight."""

import json
from collections import Counter
from pathlib import Path

import pytest

from dray.domain.devices import Capacity, DeviceClass, RequestPolicy
from dray.domain.dra.asks import Ask, Claim, Holding, Request
from dray.domain.dra.nodes import Node, Reach
from dray.domain.dra.slices import Device as PublishedDevice
from dray.domain.dra.slices import Slice
from dray.kube.convert_dra_claims import claim_from, holdings_from
from dray.kube.convert_dra_slices import class_from, node_from, slice_from
from dray_allocator.structured import fleet as fleets
from dray_allocator.structured.allocate import Problem, allocate
from dray_allocator.structured.errors import AllocationError, NodeAllocationError
from dray_allocator.structured.fleet import Fleet
from dray_allocator.structured.rules import LIST_ATTRIBUTES, rules_for

ORACLE = Path(__file__).parents[3] / "conformance" / "oracle"
MINORS = ("1.34", "1.35", "1.36", "1.37")
CASES = 60
MODEL = 'device.attributes["d.x"].model == "big"'
SHARE = RequestPolicy(default="10", minimum="1")
RULES = rules_for("1.36")
CLASSES = [DeviceClass("any")]


@pytest.fixture
def cases(importing_from):
    """Generated clusters of a minor, with more nodes than the one that each is about."""

    def made(minor):
        with importing_from(ORACLE) as module:
            for case in module("allocation.cases").cases(11, CASES, minor):
                yield json.loads(json.dumps(case.question))

    return made


@pytest.fixture
def asked(monkeypatch):
    """The nodes that a fleet asked ``allocate`` about."""
    nodes = []

    def counting(problem, rules):
        nodes.append(problem.node.name)
        return allocate(problem, rules)

    monkeypatch.setattr(fleets, "allocate", counting)
    return nodes


def one_by_one(nodes, slices, classes, held, claims, rules):
    """The first fit without any short cut."""
    holdings = [one for some in held for one in some]
    for node in nodes:
        try:
            results = allocate(Problem(node, slices, classes, holdings, claims), rules)
        except NodeAllocationError:
            continue
        if results is not None:
            return node.name, results
    return None


def outcome(look):
    """What was found, or that it ended with an error."""
    try:
        return look()
    except AllocationError:
        return "error"


@pytest.mark.parametrize("minor", MINORS)
def test_a_fleet_finds_what_asking_node_by_node_finds(cases, minor, asked):
    seen, nodes_in_all = Counter(), 0
    for question in cases(minor):
        rules = rules_for(minor, question["features"])
        slices = [slice_from(one, "") for one in question["slices"]]
        classes = [class_from(one, "") for one in question["classes"]]
        held = [list(holdings_from(one, "")) for one in question["allocated"]]
        claims = [claim_from(one, "") for one in question["claims"]]
        here = node_from(question["node"], "")
        named = dict.fromkeys(part.reach.node for part in slices if part.reach.node)
        others = [Node(name, here.labels) for name in named if name != here.name]
        nodes = [*others, Node("bare"), here]
        fleet = Fleet(slices, classes, rules)
        for number, holdings in enumerate(held):
            fleet.hold(str(number), holdings)

        def by_fleet(fleet=fleet, nodes=nodes, claims=claims):
            found = fleet.first_fit(nodes, claims)
            return found and (found.node, found.results)

        def by_hand(nodes=nodes, given=(slices, classes, held, claims, rules)):
            return one_by_one(nodes, *given)

        found = outcome(by_fleet)
        assert found == outcome(by_hand), question["id"]
        seen[found if isinstance(found, str) else type(found)] += 1
        nodes_in_all += len(nodes)
    assert min(seen["error"], seen[tuple], seen[type(None)]) >= 1
    assert len(asked) < nodes_in_all


def card(index, model, shared):
    capacity = {"memory": Capacity("10", SHARE)} if shared else {}
    return PublishedDevice(
        f"gpu-{index}",
        attributes={"model": model, "uuid": f"{model}-{index}"},
        capacity=capacity,
        allow_multiple_allocations=shared,
    )


def node_slice(number, model, shared=False):
    name = f"node-{number}"
    cards = tuple(card(index, model, shared) for index in range(4))
    return Slice(f"s-{name}", "d.x", name, 1, 1, Reach(name), devices=cards)


def claim(count=1, selector=MODEL, **fields):
    request = Request("r", Ask("r", "any", (selector,), count=count, **fields))
    return Claim("ns", "claim", "uid", (request,))


NODES = [Node(f"node-{number}") for number in range(40)]


def test_nodes_whose_devices_no_selector_takes_are_not_asked(asked):
    slices = [node_slice(n, "big" if n == 25 else "small") for n in range(40)]
    found = Fleet(slices, CLASSES, RULES).first_fit(NODES, [claim()])
    assert found.node == "node-25"
    assert asked == ["node-25"]


def test_lists_are_told_apart_with_the_types_of_their_values(asked):
    def part(number, value):
        name = f"node-{number}"
        device = PublishedDevice("gpu", attributes={"list": (value,)})
        return Slice(f"s-{name}", "d.x", name, 1, 1, Reach(name), devices=(device,))

    rules = rules_for("1.37", [*rules_for("1.37").features, LIST_ATTRIBUTES])
    fleet = Fleet([part(0, True), part(1, 1)], CLASSES, rules)
    found = fleet.first_fit(NODES[:2], [claim(selector='1 in device.attributes["d.x"].list')])
    assert found is not None
    assert found.node == "node-1"


def test_nodes_whose_devices_are_in_use_are_not_asked_until_they_are_given_back(asked):
    fleet = Fleet([node_slice(n, "big") for n in range(40)], CLASSES, RULES)
    for n in range(39):
        fleet.hold(f"c-{n}", [Holding("d.x", f"node-{n}", f"gpu-{i}") for i in range(4)])
    assert fleet.first_fit(NODES, [claim()]).node == "node-39"
    fleet.release("c-3", [("d.x", "node-3")])
    assert fleet.first_fit(NODES, [claim(count=4)]).node == "node-3"
    assert asked == ["node-39", "node-3"]


def test_shared_devices_with_too_little_left_are_not_asked(asked):
    fleet = Fleet([node_slice(n, "big", shared=True) for n in range(2)], CLASSES, RULES)
    shares = [
        Holding("d.x", "node-0", f"gpu-{i}", is_share=True, consumed={"memory": "7"})
        for i in range(4)
    ]
    fleet.hold("c", shares)
    assert fleet.first_fit(NODES, [claim(capacity={"memory": "4"})]).node == "node-1"
    assert fleet.first_fit(NODES, [claim(capacity={"memory": "3"})]).node == "node-0"
    assert asked == ["node-1", "node-0"]


def test_a_selector_that_fails_on_a_device_fails_the_attempt_also_in_a_fleet():
    broken = 'device.attributes["d.x"].absent == "x"'
    fleet = Fleet([node_slice(n, "big") for n in range(3)], CLASSES, RULES)
    with pytest.raises(AllocationError, match="absent"):
        fleet.first_fit(NODES, [claim(selector=broken)])


def test_a_missing_class_is_an_error_wherever_there_is_nothing_to_ask():
    with pytest.raises(AllocationError, match="could not retrieve"):
        Fleet([], [], RULES).first_fit([Node("bare")], [claim()])


def test_a_selector_that_reads_what_tells_all_apart_is_left_to_asking(asked):
    slices = [node_slice(n, f"model-{n}") for n in range(300)]
    nodes = [Node(f"node-{n}") for n in range(300)]
    chosen = 'device.attributes["d.x"].model == "model-5"'
    found = Fleet(slices, CLASSES, RULES).first_fit(nodes, [claim(selector=chosen)])
    assert found.node == "node-5"
    assert len(asked) == 6
