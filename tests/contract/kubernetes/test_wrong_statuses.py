"""What is wrong with the status of a claim is refused by name."""

from typing import Any

import pytest

SPEC = {
    "devices": {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "All"}},
            {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "x"}]},
        ]
    }
}
DEVICE = {"driver": "example.com", "pool": "node-1", "device": "gpu-0"}
OPAQUE = {"driver": "example.com", "parameters": {"a": 1}}
USER = {"resource": "jobs", "apiGroup": "example.com", "name": "j", "uid": "u"}
A = "status.allocation"


def allocated(**of_the_first: Any) -> dict[str, Any]:
    result = {"request": "gpu", **DEVICE, **of_the_first}
    return {"allocation": {"devices": {"results": [result]}}}


def configured(**config: Any) -> dict[str, Any]:
    return {"allocation": {"devices": {"config": [{"opaque": OPAQUE, **config}]}}}


def on_nodes(**term: Any) -> dict[str, Any]:
    return {"allocation": {"nodeSelector": {"nodeSelectorTerms": [term]}}}


def expression(**expression: Any) -> dict[str, Any]:
    return on_nodes(matchExpressions=[expression])


def name_in(*values: str, key: str = "metadata.name") -> dict[str, Any]:
    return on_nodes(matchFields=[{"key": key, "operator": "In", "values": list(values)}])


def of_the_device(**more: Any) -> dict[str, Any]:
    return allocated() | {"devices": [DEVICE | more]}


def condition(**more: Any) -> dict[str, Any]:
    found = {"type": "C", "status": "True", "reason": "R", "message": ""}
    found |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    return of_the_device(conditions=[found | more])


RESULT = f"{A}.devices.results[0]"
TERM = f"{A}.nodeSelector.nodeSelectorTerms[0]"
WRONG: dict[str, tuple[Any, list[str]]] = {
    "a request that the spec does not have": (
        allocated(request="other"),
        [f'{RESULT}.request: Invalid value: "other": must be the name of a request in the cla'],
    ),
    "an alternative that the spec does not have": (
        allocated(request="any/small"),
        [f'{RESULT}.request: Invalid value: "any/small": must be the name of a request in the'],
    ),
    "no request": (
        allocated(request=""),
        [
            f'{RESULT}.request: Invalid value: "": a lowercase RFC 1123 label',
            f'{RESULT}.request: Invalid value: "": must be the name of a request in the claim or',
        ],
    ),
    "no driver": (allocated(driver=""), [f"{RESULT}.driver: Required value"]),
    "a driver that is not a domain": (
        allocated(driver="Example_com"),
        [f'{RESULT}.driver: Invalid value: "Example_com": a lowercase RFC 1123 subdomain'],
    ),
    "no pool": (allocated(pool=""), [f"{RESULT}.pool: Required value"]),
    "a pool with an empty part": (
        allocated(pool="a//b"),
        [f'{RESULT}.pool: Invalid value: "": a lowercase RFC 1123 subdomain'],
    ),
    "no device": (
        allocated(device=""),
        [f'{RESULT}.device: Invalid value: "": a lowercase RFC 1123 label'],
    ),
    "a device that is not a label": (
        allocated(device="GPU-0"),
        [f'{RESULT}.device: Invalid value: "GPU-0": a lowercase RFC 1123 label'],
    ),
    "a share that is not a UUID": (
        allocated(shareID="one"),
        [f'{RESULT}.shareID: Invalid value: "one": error validating uid: invalid UUID length:'],
    ),
    "a share in upper case": (
        allocated(shareID="A1111111-2222-3333-4444-555555555555"),
        [f'{RESULT}.shareID: Invalid value: "A1111111-2222-3333-4444-555555555555": uid'],
    ),
    "binding conditions without failures": (
        allocated(bindingConditions=["a"]),
        [f"{RESULT}.bindingFailureConditions: Invalid value: null: bindingFailureConditions a"],
    ),
    "failures without binding conditions": (
        allocated(bindingFailureConditions=["a"]),
        [f"{RESULT}.bindingConditions: Invalid value: null: bindingConditions are required to"],
    ),
    "a failure that is also waited for": (
        allocated(bindingConditions=["a"], bindingFailureConditions=["a"]),
        [f'{RESULT}.bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions'],
    ),
    "a binding condition twice": (
        allocated(bindingConditions=["a", "a"], bindingFailureConditions=["b"]),
        [f'{RESULT}.bindingConditions[1]: Duplicate value: "a"'],
    ),
    "a binding condition that is not a label": (
        allocated(bindingConditions=["-"], bindingFailureConditions=["b"]),
        [f'{RESULT}.bindingConditions[0]: Invalid value: "-": name part'],
    ),
    "a config without source": (
        configured(),
        [f"{A}.devices.config[0].source: Required value"],
    ),
    "a config from elsewhere": (
        configured(source="FromPod"),
        [f'{A}.devices.config[0].source: Unsupported value: "FromPod": supported values: "Fro'],
    ),
    "a config for a request that the spec does not have": (
        configured(source="FromClaim", requests=["x"]),
        [f'{A}.devices.config[0].requests[0]: Invalid value: "x": must be the name of a reque'],
    ),
    "a node selector without terms": (
        {"allocation": {"nodeSelector": {}}},
        [f"{A}.nodeSelector.nodeSelectorTerms: Required value: must have at least one node se"],
    ),
    "a node selector with an unknown operator": (
        expression(key="a", operator="Is"),
        [f"{TERM}.matchExpressions[0].operator: Invalid value:"],
    ),
    "a node selector's In without values": (
        expression(key="a", operator="In"),
        [f"{TERM}.matchExpressions[0].values: Required value: "],
    ),
    "a node selector's Exists with values": (
        expression(key="a", operator="Exists", values=["b"]),
        [f"{TERM}.matchExpressions[0].values: Forbidden: may n"],
    ),
    "a node selector's Gt with two values": (
        expression(key="a", operator="Gt", values=["1", "2"]),
        [f"{TERM}.matchExpressions[0].values: Required value: "],
    ),
    "a node selector's key that is not a label": (
        expression(key="-", operator="Exists"),
        [f'{TERM}.matchExpressions[0].key: Invalid value: "-":'],
    ),
    "a node selector's field of two values": (
        name_in("a", "b"),
        [f"{TERM}.matchFields[0].values: Required value: must "],
    ),
    "a node selector's field that is not a name": (
        name_in("a", key="spec.x"),
        [f'{TERM}.matchFields[0].key: Invalid value: "spec.x":'],
    ),
    "an invalid node name in a selector": (
        name_in("A_"),
        [f'{TERM}.matchFields[0].values[0]: Invalid value: "A_'],
    ),
    "a reservation without its parts": (
        allocated() | {"reservedFor": [{}]},
        [
            "status.reservedFor[0].resource: Required value",
            "status.reservedFor[0].name: Required value",
            "status.reservedFor[0].uid: Required value",
        ],
    ),
    "a reservation twice": (
        allocated() | {"reservedFor": [USER, USER]},
        ['status.reservedFor[1]: Duplicate value: "u"'],
    ),
    "the status of a device that is not allocated": (
        of_the_device(device="gpu-1"),
        ['status.devices[0]: Invalid value: {"Driver":"example.com","Pool":"node-1","Device"'],
    ),
    "the status of another share": (
        of_the_device(shareID="11111111-2222-3333-4444-555555555555"),
        ['status.devices[0]: Invalid value: {"Driver":"example.com","Pool":"node-1","Device"'],
    ),
    "the status of a device twice": (
        allocated() | {"devices": [DEVICE, DEVICE]},
        ['status.devices[1]: Duplicate value: {"Driver":"example.com","Pool":"node-1","Devic'],
    ),
    "a device's data that is not an object": (
        of_the_device(data=[1]),
        ['status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON obj'],
    ),
    "a device's condition without reason": (
        condition(reason=""),
        ["status.devices[0].conditions[0].reason: Required value"],
    ),
    "a device's condition of an unknown status": (
        condition(status="Maybe"),
        ['status.devices[0].conditions[0].status: Unsupported value: "Maybe": supported valu'],
    ),
    "an invalid address": (
        of_the_device(networkData={"ips": ["10.0.0.300/24"]}),
        ['status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.300/24": must be a va'],
    ),
    "an address without its network": (
        of_the_device(networkData={"ips": ["10.0.0.1"]}),
        ['status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1": must be a valid a'],
    ),
}
IN_OTHER_MINORS: dict[int, dict[str, list[str]]] = {
    34: {
        "no driver": [f"{RESULT}.driver: Required value", f"{RESULT}.driver: Invalid value"],
        "a reservation twice": ["status.reservedFor[1].uid: Duplicate value"],
        "the status of a device twice": ["status.devices[1].deviceID: Duplicate value"],
    },
}
"""Of other minors than the sandbox's: other fields and types."""


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_status_is_refused(api: Any, invalid: Any, what: str) -> None:
    status, expected = WRONG[what]
    api.needs_kept(status)
    await api.create("resourceclaims", {"metadata": {"name": "one"}, "spec": SPEC})

    with invalid(expected, IN_OTHER_MINORS, what):
        await api.patch("resourceclaims", "one", {"status": status}, "status")
