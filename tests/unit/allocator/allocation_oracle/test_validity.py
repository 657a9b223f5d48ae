"""Whether an allocation is valid, by rules apart from any allocator."""

import copy

import pytest
from tests.unit.allocator.allocation_oracle.sample import FITTING, answer


@pytest.mark.parametrize("line", FITTING, ids=lambda line: line["id"])
def test_what_kubernetes_allocates_is_valid(faults, line):
    assert faults(line, answer(line["expect"]["allocations"])) == []


@pytest.mark.parametrize("line", FITTING, ids=lambda line: line["id"])
def test_an_allocation_that_lacks_a_device_or_has_one_twice_is_not_valid(faults, line):
    less, more = (copy.deepcopy(line["expect"]["allocations"]) for _ in range(2))
    less[0]["devices"]["results"].pop()
    more[0]["devices"]["results"].append(more[0]["devices"]["results"][0])
    assert faults(line, answer(less))
    assert faults(line, answer(more))


def counts_of_faults(faults, change):
    """How many samples are invalid once each result of theirs is changed."""
    found = 0
    for line in FITTING:
        changed = copy.deepcopy(line)
        allocations = changed["expect"]["allocations"]
        change(changed, allocations)
        found += changed != line and bool(faults(changed, answer(allocations)))
    return found


def each_result(change):
    def all_of(_, allocations):
        for allocation in allocations:
            for result in allocation["devices"]["results"]:
                change(result)

    return all_of


def taint_every_device(line, _):
    for one in line["slices"]:
        for device in one["spec"].get("devices", []):
            device["taints"] = [{"key": "example.com/new", "effect": "NoSchedule"}]


def hold_every_device(line, allocations):
    results = [
        {key: result[key] for key in ("request", "driver", "pool", "device")}
        for allocation in allocations
        for result in allocation["devices"]["results"]
    ]
    held = copy.deepcopy(line["claims"][0])
    held["status"] = {"allocation": {"devices": {"results": results}}}
    line["allocated"].append(held)


def move_to_another_node(line, _):
    line["node"]["metadata"]["name"] = "node-7"


def want_nothing(line, _):
    for one in line["classes"]:
        one["spec"]["selectors"] = [{"cel": {"expression": "false"}}]


@pytest.mark.parametrize(
    ("change", "least"),
    [
        (taint_every_device, 18),
        (hold_every_device, 20),
        (move_to_another_node, 15),
        (want_nothing, 21),
        (each_result(lambda result: result.update(request="no-such")), 21),
        (each_result(lambda result: result.update(adminAccess=True)), 20),
        (each_result(lambda result: result.update(bindingConditions=["x.y/z"])), 21),
        (each_result(lambda result: result.pop("consumedCapacity", None)), 3),
        (lambda _, allocations: [one.pop("nodeSelector", None) for one in allocations], 15),
        (lambda _, allocations: [one["devices"].pop("config", None) for one in allocations], 6),
    ],
)
def test_each_rule_is_held(faults, change, least):
    assert counts_of_faults(faults, change) >= least
