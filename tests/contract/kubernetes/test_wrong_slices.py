"""What is wrong with a slice is refused by name."""

from typing import Any

import pytest

POOL = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
D = "spec.devices[0]"
P = "spec.devices[0].capacity[vram].requestPolicy"


def spec(*devices: Any, **more: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"driver": "example.com", "pool": POOL, "nodeName": "node-1"}
    if devices:
        described["devices"] = list(devices)
    return {k: v for k, v in (described | more).items() if v is not None}


def device(name: str = "gpu-0", **more: Any) -> dict[str, Any]:
    return spec({"name": name, **more})


def tainted(**taint: Any) -> dict[str, Any]:
    return device(taints=[taint])


def shared(**policy: Any) -> dict[str, Any]:
    capacity = {"vram": {"value": "80Gi", "requestPolicy": policy}}
    return device(allowMultipleAllocations=True, capacity=capacity)


def counting(**counters: Any) -> dict[str, Any]:
    return spec(sharedCounters=[counters])


def consuming(*used: Any) -> dict[str, Any]:
    return device(consumesCounters=list(used))


def apart(**more: Any) -> dict[str, Any]:
    return spec({"name": "gpu-0", **more}, nodeName=None, perDeviceNodeSelection=True)


def on_nodes(*terms: Any) -> dict[str, Any]:
    return spec(nodeName=None, nodeSelector={"nodeSelectorTerms": list(terms)})


LABEL = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
ONE = {"c": {"value": "1"}}
WRONG: dict[str, tuple[Any, list[str]]] = {
    "no driver": (spec(driver=""), ["spec.driver: Required value"]),
    "a driver that is not a domain": (
        spec(driver="a_b"),
        ['spec.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain'],
    ),
    "a pool with an empty part": (
        spec(pool={**POOL, "name": "a//b"}),
        ['spec.pool.name: Invalid value: "": a lowercase RFC 1123 subdomain'],
    ),
    "an empty node name": (
        spec(nodeName=""),
        [
            'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty strin',
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perD",
        ],
    ),
    "an invalid node name": (
        spec(nodeName="Node_1"),
        ['spec.nodeName: Invalid value: "Node_1": a lowercase RFC 1123 subdomain'],
    ),
    "allNodes that is false": (
        spec(nodeName=None, allNodes=False),
        [
            "spec.allNodes: Invalid value: false: must be either unset or set to true",
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perD",
        ],
    ),
    "perDeviceNodeSelection that is false": (
        spec(perDeviceNodeSelection=False),
        ["spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to "],
    ),
    "no terms of nodes": (
        on_nodes(),
        [
            "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node s",
            "spec.nodeSelector.nodeSelectorTerms: Invalid value: []: must have exactly one node",
        ],
    ),
    "two terms of nodes": (
        on_nodes(LABEL, LABEL),
        ['spec.nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":[{"Key":"'],
    ),
    "a term of nodes that is wrong": (
        on_nodes({"matchExpressions": [{"key": "a", "operator": "Is"}]}),
        ["spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value"],
    ),
    "devices and shared counters": (
        spec({"name": "gpu-0"}, sharedCounters=[{"name": "s", "counters": ONE}]),
        ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
    ),
    "no name": (device(""), [f'{D}.name: Invalid value: "": a lowercase RFC 1123 label']),
    "an attribute that is not an identifier": (
        device(attributes={"a-b": {"int": 1}}),
        [f'{D}.attributes: Invalid value: "a-b": a valid C identifier must start with alphabe'],
    ),
    "an attribute of an empty name": (
        device(attributes={"": {"int": 1}}),
        [f'{D}.attributes: Invalid value: "": a valid C identifier must start with alphabetic'],
    ),
    "an attribute without domain": (
        device(attributes={"/a": {"int": 1}}),
        [f'{D}.attributes: Invalid value: "": the domain must not be empty'],
    ),
    "a capacity that is not an identifier": (
        device(capacity={"a.b": {"value": "1"}}),
        [f'{D}.capacity: Invalid value: "a.b": a valid C identifier must start with alphabeti'],
    ),
    "a version with leading zeros": (
        device(attributes={"a": {"version": "01.0.0"}}),
        [f'{D}.attributes[a].version: Invalid value: "01.0.0": must be a string compatible wi'],
    ),
    "a taint without key": (
        tainted(effect="NoSchedule"),
        [
            f'{D}.taints[0].key: Invalid value: "": name part must be non-empty',
            f'{D}.taints[0].key: Invalid value: "": name part',
        ],
    ),
    "a taint of a value that is not a label": (
        tainted(key="a", value="-", effect="None"),
        [f'{D}.taints[0].value: Invalid value: "-": a valid label must be an empty string or '],
    ),
    "a policy's range above the size": (
        shared(default="1Gi", validRange={"min": "1Gi", "max": "90Gi"}),
        [f'{P}.validRange.max: Invalid value: "90Gi": max is larger than capacity value: 80Gi'],
    ),
    "a policy's range upside down": (
        shared(default="2Gi", validRange={"min": "2Gi", "max": "1Gi"}),
        [
            f'{P}.validRange.max: Invalid value: "2Gi": min is larger than max: 1Gi',
            f'{P}.validRange.max: Invalid value: "2Gi": default is more than max: 1Gi',
        ],
    ),
    "a policy's default above the range": (
        shared(default="9Gi", validRange={"min": "1Gi", "max": "2Gi"}),
        [f'{P}.validRange.max: Invalid value: "9Gi": default is more than max: 2Gi'],
    ),
    "a policy's default between steps": (
        shared(default="3Gi", validRange={"min": "2Gi", "step": "2Gi"}),
        [f'{P}.validRange.step: Invalid value: "3Gi": value is not a multiple of a given step'],
    ),
    "a policy's step above the size": (
        shared(default="1Gi", validRange={"min": "1Gi", "step": "80Gi"}),
        [f'{P}.validRange.step: Invalid value: "80Gi": one step 81Gi is larger than capacity '],
    ),
    "a policy's range without min": (
        shared(default="1Gi", validRange={"max": "2Gi"}),
        [f"{P}.validRange.min: Required value: required when validRange is defined"],
    ),
    "a policy's value twice": (
        shared(default="1Gi", validValues=["1Gi", "1Gi"]),
        [f'{P}.validValues[1]: Duplicate value: "1073741824"'],
    ),
    "a policy's value above the size": (
        shared(default="1Gi", validValues=["1Gi", "90Gi"]),
        [f'{P}.validValues[1]: Invalid value: "90Gi": option is larger than capacity value: 8'],
    ),
    "binding conditions without failures": (
        device(bindingConditions=["a"]),
        [f"{D}.bindingFailureConditions: Invalid value: null: bindingFailureConditions are re"],
    ),
    "a binding condition twice": (
        device(bindingConditions=["a", "a"], bindingFailureConditions=["b"]),
        [f'{D}.bindingConditions[1]: Duplicate value: "a"'],
    ),
    "a counter set without name": (
        counting(counters=ONE),
        ["spec.sharedCounters[0].name: Required value"],
    ),
    "a counter set that is not a label": (
        counting(name="S_", counters=ONE),
        ['spec.sharedCounters[0].name: Invalid value: "S_": a lowercase RFC 1123 label'],
    ),
    "a counter set without counters": (
        counting(name="s"),
        ["spec.sharedCounters[0].counters: Required value"],
    ),
    "a counter that is not a label": (
        counting(name="s", counters={"C_": {"value": "1"}}),
        ['spec.sharedCounters[0].counters: Invalid value: "C_": a lowercase RFC 1123 label'],
    ),
    "a counter set twice": (
        spec(sharedCounters=[{"name": "s", "counters": ONE}, {"name": "s", "counters": ONE}]),
        ['spec.sharedCounters[1]: Duplicate value: "s"'],
    ),
    "consuming no set": (
        consuming({"counters": ONE}),
        [f"{D}.consumesCounters[0].counterSet: Required value"],
    ),
    "consuming a set that is not a label": (
        consuming({"counterSet": "S_", "counters": ONE}),
        [f'{D}.consumesCounters[0].counterSet: Invalid value: "S_": a lowercase RFC 1123 labe'],
    ),
    "consuming no counters": (
        consuming({"counterSet": "s"}),
        [f"{D}.consumesCounters[0].counters: Required value"],
    ),
    "consuming a counter that is not a label": (
        consuming({"counterSet": "s", "counters": {"C_": {"value": "1"}}}),
        [f'{D}.consumesCounters[0].counters: Invalid value: "C_": a lowercase RFC 1123 label'],
    ),
    "consuming a set twice": (
        consuming({"counterSet": "s", "counters": ONE}, {"counterSet": "s", "counters": ONE}),
        [f'{D}.consumesCounters[1]: Duplicate value: "s"'],
    ),
    "a device apart without nodes": (
        apart(),
        [f"{D}: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is r"],
    ),
    "a device apart with two kinds of nodes": (
        apart(nodeName="n", allNodes=True),
        [f'{D}: Invalid value: "{{`nodeName`, `allNodes`}}": exactly one of `nodeName`, `nodeSe'],
    ),
    "a device apart with an empty node name": (
        apart(nodeName=""),
        [
            f'{D}.nodeName: Invalid value: "": must not be empty',
            f"{D}: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is r",
        ],
    ),
    "a device apart with allNodes that is false": (
        apart(allNodes=False),
        [
            f"{D}.allNodes: Invalid value: false: must be either unset or set to true",
            f"{D}: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is r",
        ],
    ),
    "a device apart with no terms": (
        apart(nodeSelector={"nodeSelectorTerms": []}),
        [f"{D}.nodeSelector.nodeSelectorTerms: Required value: must have at least one node se"],
    ),
}
IN_OTHER_MINORS: dict[int, dict[str, list[str]]] = {
    34: {
        "no driver": ["spec.driver: Required value", "spec.driver: Invalid value"],
        "an attribute that is not an identifier": [f"{D}.attributes[a-b]: Invalid value"],
        "an attribute of an empty name": [f"{D}.attributes[]: Required value"],
        "an attribute without domain": [f"{D}.attributes[/a]: Required value"],
        "a capacity that is not an identifier": [f"{D}.capacity[a.b]: Invalid value"],
    },
    35: {
        "an attribute that is not an identifier": [f"{D}.attributes[a-b]: Invalid value"],
        "an attribute of an empty name": [f"{D}.attributes[]: Invalid value"],
        "an attribute without domain": [f"{D}.attributes[/a]: Invalid value"],
        "a capacity that is not an identifier": [f"{D}.capacity[a.b]: Invalid value"],
    },
    37: {
        "a policy's range upside down": [
            f"{P}.validRange.max: Invalid value",
            f"{P}.validRange.default: Invalid value",
        ],
        "a policy's default above the range": [f"{P}.validRange.default: Invalid value"],
    },
}
"""Of other minors than the sandbox's: other fields and types."""
TAKEN = {
    "no devices": spec(),
    "a name of three parts": device(attributes={"a/b/c": {"int": 1}}),
    "a string that is empty": device(attributes={"a": {"string": ""}}),
    "a negative capacity": device(capacity={"a": {"value": "-1"}}),
    "a policy of a default alone": shared(default="90Gi"),
    "a counter that nobody declares": consuming({"counterSet": "s", "counters": ONE}),
    "a device apart with two terms": apart(nodeSelector={"nodeSelectorTerms": [LABEL, LABEL]}),
    "a taint twice": device(taints=[{"key": "a", "effect": "None"}] * 2),
    "a pool of two parts": spec(pool={**POOL, "name": "rack/node"}),
    "generation zero": spec(pool={**POOL, "generation": 0}),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_slice_is_refused(api: Any, invalid: Any, what: str) -> None:
    spec, expected = WRONG[what]
    body = {"metadata": {"name": api.unique("s")}, "spec": spec}
    api.needs_kept(body)

    with invalid(expected, IN_OTHER_MINORS, what):
        await api.create("resourceslices", body)


@pytest.mark.parametrize("what", TAKEN)
async def test_a_slice_that_looks_wrong_may_be_accepted(api: Any, what: str) -> None:
    body = {"metadata": {"name": api.unique("s")}, "spec": TAKEN[what]}
    api.needs_kept(body)

    await api.create("resourceslices", body)
