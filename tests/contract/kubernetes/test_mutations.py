"""Objects broken at random: the sandbox takes and refuses what the real server does."""

import copy
import json
import random
import ssl
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from tests.conformance.left_out import only_where

GROUP = "/apis/resource.k8s.io/v1"
NAMESPACED = "namespaces/default"
EXACTLY = {
    "deviceClassName": "x",
    "allocationMode": "ExactCount",
    "count": 2,
    "selectors": [{"cel": {"expression": "device.driver == 'a'"}}],
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
    "capacity": {"requests": {"vram": "1Gi"}},
}
CLAIM = {
    "devices": {
        "requests": [
            {"name": "a", "exactly": EXACTLY},
            {"name": "b", "firstAvailable": [{"name": "o", "deviceClassName": "x"}]},
        ],
        "constraints": [{"requests": ["a", "b/o"], "matchAttribute": "example.com/x"}],
        "config": [
            {"requests": ["a"], "opaque": {"driver": "example.com", "parameters": {"a": 1}}}
        ],
    }
}
RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "40Gi", "step": "1Gi"}}
DEVICE = {
    "name": "gpu-0",
    "attributes": {"model": {"string": "A"}, "n": {"int": 1}, "ver": {"version": "1.0.0"}},
    "capacity": {"vram": {"value": "80Gi", "requestPolicy": RANGE}},
    "allowMultipleAllocations": True,
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "bindingConditions": ["w"],
    "bindingFailureConditions": ["f"],
}
SLICE = {
    "driver": "example.com",
    "nodeName": "n",
    "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
    "devices": [DEVICE, {"name": "gpu-1"}],
}
POD = {
    "nodeSelector": {"a": "b"},
    "schedulingGates": [{"name": "example.com/g"}],
    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    "containers": [
        {
            "name": "c",
            "image": "i",
            "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        }
    ],
}
WHOLE = {
    "claims": (f"{GROUP}/{NAMESPACED}/resourceclaims", CLAIM),
    "slices": (f"{GROUP}/resourceslices", SLICE),
    "pods": (f"/api/v1/{NAMESPACED}/pods", POD),
}
VALUES: list[Any] = [
    "", "A_b", "x" * 70, "a/b", "a//b", "-1", "1Gi", 0, -1, 1, 1.5, True, False, None,
    [], {}, ["a"], {"a": "b"}, "é", " a", [None], {"": ""}, "All",
]  # fmt: skip
KEYS = ["", "A b", "x" * 70, "a/b/c", "-"]
MUTATIONS = 150


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything within a value."""
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from places(item, (*path, key))


def broken(chance: random.Random, whole: Any) -> Any:
    """The value with one thing replaced, removed, doubled, renamed or added."""
    result = copy.deepcopy(whole)
    *above, last = chance.choice(list(places(result)))
    parent = result
    for key in above:
        parent = parent[key]
    match chance.choice(["replace", "replace", "remove", "double", "rename", "add"]):
        case "remove":
            del parent[last]
        case "double" if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        case "rename" if isinstance(parent, dict):
            parent[chance.choice(KEYS)] = parent.pop(last)
        case "add" if isinstance(parent[last], dict):
            parent[last]["oddField"] = chance.choice(VALUES)
        case _:
            parent[last] = chance.choice(VALUES)
    return result


@pytest.fixture(scope="module")
def both(serving: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    folder = tmp_path_factory.mktemp
    with serving("sandbox", folder("sandbox")) as one, serving("real", folder("real")) as other:
        yield one, other


async def verdict(session: aiohttp.ClientSession, target: Any, path: str, body: Any) -> Any:
    """The code, and the types and fields of what is wrong."""
    async with session.post(
        target.url + path,
        headers={"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"},
        params={"dryRun": "All", "fieldValidation": "Strict"},
        data=json.dumps(body),
        ssl=ssl.create_default_context(cafile=str(target.ca_file)),
    ) as response:
        answer = await response.json()
    causes = (answer.get("details") or {}).get("causes") or []
    reported = {(cause.get("reason", ""), cause.get("field", "")) for cause in causes}
    return response.status, sorted(reported) if response.status == 422 else []


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", WHOLE)
async def test_randomly_broken_objects_are_refused_alike(both: Any, kind: str) -> None:
    sandbox, real = both
    only_where(real.minor == sandbox.minor, f"the sandbox stands for 1.{sandbox.minor}")
    path, whole = WHOLE[kind]
    chance = random.Random(f"dray {kind}")
    bodies = [
        {"metadata": {"name": "broken"}, "spec": broken(chance, whole)} for _ in range(MUTATIONS)
    ]

    async with aiohttp.ClientSession() as session:
        differing = [
            (body, found, expected)
            for body in bodies
            if (found := await verdict(session, sandbox, path, body))
            != (expected := await verdict(session, real, path, body))
        ]

    assert differing == []
