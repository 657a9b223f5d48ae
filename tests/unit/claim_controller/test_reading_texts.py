"""A listed object's text is read without decoding it whole, with the same outcome."""

import copy
import types
from collections.abc import Sequence
from typing import Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.json_codec import MOST_CONTAINERS, containers
from dray.api.names import (
    ALLOCATED,
    ALLOCATION_GATE,
    DECISION,
    DEVICE_CLASS,
    DRIVER,
    GPUPOOL,
    POOL_LABEL,
    SHAPE,
)
from dray.kube.api_transport import PageReader
from dray.kube.object_fields import (
    BareFields,
    ClaimFields,
    ClaimSpecFields,
    NodeFields,
    PodFields,
    SliceFields,
)
from dray.kube.object_text import object_from
from dray.kube.ports import BIND_REQUESTS, CLAIMS, NODES, PODS, SLICES, Object, Resource
from dray_claim_controller.cache.converted_objects import convert, convert_text
from dray_claim_controller.cache.object_cache import ObjectCache

METADATA: Object = {
    "name": "one",
    "namespace": "ns",
    "uid": "uid-one",
    "resourceVersion": "12",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-02T00:00:00Z",
    "deletionGracePeriodSeconds": 30,
    "labels": {POOL_LABEL: "pool", "app": "a"},
    "annotations": {GPUPOOL: "pool", SHAPE: '{"a":[1]}', DECISION: "7", ALLOCATED: "true"},
    "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}],
    "finalizers": ["f"],
    "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
}
CONTAINER: Object = {
    "name": "c",
    "image": "i",
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}],
    "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"memory": "1Gi"}},
    "restartPolicyRules": [{"action": "RestartAllContainers"}],
}
EXPRESSIONS = [{"key": "k", "operator": "In", "values": ["v"]}]
TERMS = [{"matchExpressions": EXPRESSIONS, "matchFields": EXPRESSIONS}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RESOURCES = {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": METADATA,
    "spec": {
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": TERMS}},
            "podAffinity": {REQUIRED: [{"topologyKey": "zone"}]},
            "podAntiAffinity": {
                REQUIRED: [
                    {
                        "topologyKey": "zone",
                        "namespaceSelector": {},
                        "namespaces": ["ns"],
                        "labelSelector": {
                            "matchLabels": {"a": "b"},
                            "matchExpressions": EXPRESSIONS,
                        },
                    }
                ]
            },
        },
        "containers": [CONTAINER],
        "hostNetwork": True,
        "hostUsers": False,
        "initContainers": [CONTAINER, CONTAINER | {"restartPolicy": "Always"}],
        "nodeName": "n1",
        "nodeSelector": {"zone": "a"},
        "overhead": {"cpu": "100m"},
        "priority": 5,
        "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            {"name": "own", "resourceClaimName": "one"},
        ],
        "resources": RESOURCES,
        "schedulerName": "s",
        "schedulingGates": [{"name": ALLOCATION_GATE}, {"name": "other"}],
        "schedulingGroup": {"podGroupName": "g"},
        "tolerations": [{"key": "k", "operator": "Exists", "value": "", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "v", "configMap": {"name": "m"}, "csi": None}, {"name": "w"}],
        "workloadRef": {"name": "w"},
    },
    "status": {
        "allocatedResources": {"cpu": "1"},
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [
            {"name": "c", "allocatedResources": {"cpu": "5"}, "resources": RESOURCES}
        ],
        "initContainerStatuses": [{"name": "c", "resources": RESOURCES}],
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "one"}],
        "resources": RESOURCES,
    },
}
EXACTLY: Object = {
    "deviceClassName": DEVICE_CLASS,
    "adminAccess": True,
    "allocationMode": "ExactCount",
    "capacity": {"requests": {"vram": "1Gi"}},
    "count": 2,
    "derivedAttributes": [{"name": "a"}],
    "selectors": [{"cel": {"expression": "true"}}],
    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
}
CONFIG = [
    {
        "opaque": {"driver": "d", "parameters": {"kind": "x", "a": [1, {"b": None}]}},
        "requests": ["r"],
        "source": "FromClass",
    }
]
RESULT = {
    "request": "r",
    "driver": DRIVER,
    "pool": "n1",
    "device": "gpu-0",
    "adminAccess": True,
    "bindingConditions": ["c"],
    "bindingFailureConditions": ["f"],
    "consumedCapacity": {"vram": "1Gi"},
    "shareID": "s",
    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
}
CLAIM: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": METADATA,
    "spec": {
        "devices": {
            "config": CONFIG,
            "constraints": [
                {"requests": ["r"], "matchAttribute": "d/a"},
                {"distinctAttribute": "d/b"},
            ],
            "requests": [
                {"name": "r", "exactly": EXACTLY},
                {"name": "s", "firstAvailable": [EXACTLY | {"name": "t"}]},
            ],
        }
    },
    "status": {
        "allocation": {
            "devices": {"config": CONFIG, "results": [RESULT]},
            "nodeSelector": {"nodeSelectorTerms": TERMS},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    },
}
BIND_REQUEST: Object = {
    "apiVersion": "tensor-fusion.ai/v1",
    "kind": "BindRequest",
    "metadata": METADATA,
    "spec": {"podUID": "u"},
    "status": {"phase": "Succeeded"},
}
COUNTERS = {"counters": {"c": {"value": "1"}}}
DEVICE: Object = {
    "name": "gpu-0",
    "allNodes": True,
    "allowMultipleAllocations": True,
    "attributes": {
        "a": {"string": "s"},
        "b": {"bool": False},
        "c": {"int": 7},
        "d": {"version": "1.2.3"},
        "e": {"strings": ["s"]},
        "f": {"bools": [True]},
        "g": {"ints": [1]},
        "h": {"versions": ["1.2.3"]},
    },
    "bindingConditions": ["c"],
    "bindingFailureConditions": ["f"],
    "bindsToNode": True,
    "capacity": {
        "vram": {
            "value": "40Gi",
            "requestPolicy": {
                "default": "1Gi",
                "validRange": {"min": "1Gi", "max": "40Gi", "step": "1Gi"},
                "validValues": ["1Gi"],
            },
        }
    },
    "consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"], **COUNTERS}],
    "nodeAllocatableResources": {"r": {"quantity": "1"}},
    "nodeName": "n1",
    "nodeSelector": {"nodeSelectorTerms": TERMS},
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
}
SLICE: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": METADATA,
    "spec": {
        "allNodes": False,
        "devices": [DEVICE, {"name": "gpu-1"}],
        "driver": DRIVER,
        "nodeSelector": {"nodeSelectorTerms": TERMS},
        "perDeviceNodeSelection": True,
        "pool": {"name": "n1", "generation": 3, "resourceSliceCount": 2},
        "sharedCounters": [{"name": "s", **COUNTERS}],
    },
}
NODE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": METADATA,
    "spec": {
        "podCIDR": "10.0.0.0/24",
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "unschedulable": True,
    },
    "status": {
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "capacity": {"cpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "images": [{"names": ["i"], "sizeBytes": 7}],
    },
}
KINDS: dict[str, tuple[Resource, Object, Any]] = {
    "pod": (PODS, POD, PodFields),
    "claim": (CLAIMS, CLAIM, ClaimFields),
    "slice": (SLICES, SLICE, SliceFields),
    "node": (NODES, NODE, NodeFields),
    "bind request": (BIND_REQUESTS, BIND_REQUEST, BareFields),
}
each_kind = pytest.mark.parametrize(
    ("resource", "obj", "fields"), list(KINDS.values()), ids=list(KINDS)
)


def check(resource: Resource, text: bytes) -> bool:
    """Whether a text can be read; the outcome is that of decoding and converting it."""
    found = convert_text(resource, text)
    if found is None:
        return False
    wanted = convert(resource, object_from(text))
    read = [
        msgspec.structs.replace(
            one, version=msgspec.structs.replace(one.version, text=b""), value=without_text(one)
        )
        for one in (found, wanted)
    ]
    assert read[0] == read[1]
    assert objects_of(found) == objects_of(wanted)
    return True


def without_text(one: Any) -> Any:
    value = one.value
    return msgspec.structs.replace(value, text=b"") if hasattr(value, "text") else value


def objects_of(one: Any) -> list[Object]:
    texts = (one.version.text, getattr(one.value, "text", b""))
    return [object_from(text) for text in texts if text]


@pytest.mark.parametrize("allocation", [{}, {"unknown": 7}])
def test_an_allocation_without_known_fields_is_one(allocation: Object) -> None:
    text = msgspec.json.encode(CLAIM | {"status": {"allocation": allocation}})
    assert check(CLAIMS, text)
    found = convert_text(CLAIMS, text)
    assert found is not None
    assert found.value.allocation is not None


@each_kind
def test_every_field_is_read_as_from_the_whole_object(
    resource: Resource, obj: Object, fields: Any
) -> None:
    assert check(resource, msgspec.json.encode(obj))


@each_kind
@pytest.mark.parametrize(
    "change",
    [
        {"managedFields": [], "zzz": 1},
        {"managedFields": [{"manager": 'a "managedFields": []'}]},
        {"annotations": {"a": ',"managedFields":[{"manager":"m"}]'}},
    ],
    ids=["first", "in a string", "in an annotation"],
)
def test_managed_fields_are_left_out_wherever_they_are(
    resource: Resource, obj: Object, fields: Any, change: Object
) -> None:
    metadata = {**METADATA, **change}
    for entries in (metadata.items(), reversed(metadata.items()), sorted(metadata.items())):
        text = msgspec.json.encode(obj | {"metadata": dict(entries)})
        assert check(resource, text)
        found = convert_text(resource, text)
        assert all("managedFields" not in one["metadata"] for one in objects_of(found))


def test_managed_fields_that_are_there_twice_leave_the_object_to_be_decoded() -> None:
    within = BIND_REQUEST | {"spec": {"template": {"metadata": METADATA}}}
    assert convert_text(BIND_REQUESTS, msgspec.json.encode(within)) is None


@pytest.mark.parametrize("containers", [10, 200])
async def test_parameters_with_many_containers_are_left_to_be_decoded(containers: int) -> None:
    claim = copy.deepcopy(CLAIM)
    parameters = {"a": [[] for _ in range(containers)]}
    claim["spec"]["devices"]["config"][0]["opaque"]["parameters"] = parameters
    text = b'{"metadata":{"resourceVersion":"1"},"items":[%b]}' % msgspec.json.encode(claim)
    reader = PageReader(transform=ObjectCache().transform(CLAIMS))
    page = await reader.read(text, "a list")
    assert len(page.made) == (1 if containers == 10 else 0)
    found = page.made.get(0) or convert(CLAIMS, page.items[0])
    whole = convert(CLAIMS, claim)
    assert msgspec.json.encode(found.value) == msgspec.json.encode(whole.value)


ODD: list[Any] = [None, 0, 7, -1, 1.5, True, "", "x", "1Gi", "half", "é", [], [7], {}, [None]]
ODD += [{"a": 7}, {"name": 7}, [{}], [[]], {"cpu": 7}, 10**18, "9" * 25]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in an object."""
    entries: Any = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    found = [((*path, key), one) for key, one in entries]
    return [place for here, one in found for place in (here, *places(one, here))]


def changeable(obj: Object) -> list[tuple[Any, ...]]:
    return [path for path in places(obj) if path[:2] not in IDENTITY]


def replaced(obj: Object, path: Sequence[Any], odd: Any) -> Object:
    """A copy with another value at a path; ``MISSING``: with none."""
    changed = copy.deepcopy(obj)
    container, last = changed, path[-1]
    for key in path[:-1]:
        container = container[key]
    if odd is MISSING:
        del container[last]
    else:
        container[last] = copy.deepcopy(odd)
    return changed


def check_odd(resource: Resource, obj: Object) -> None:
    text = msgspec.json.encode(obj).replace(b"half", b"\\ud800")
    if containers(text) <= MOST_CONTAINERS:
        check(resource, text)


@each_kind
def test_an_object_with_any_odd_value_is_read_alike_or_left_to_be_decoded(
    resource: Resource, obj: Object, fields: Any
) -> None:
    for path in changeable(obj):
        for odd in (*ODD, MISSING):
            check_odd(resource, replaced(obj, path, odd))


@each_kind
@given(data=st.data())
def test_an_odd_object_is_read_alike_or_left_to_be_decoded(
    resource: Resource, obj: Object, fields: Any, data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(2, 3))):
        path = data.draw(st.sampled_from(changeable(obj)))
        odd = data.draw(st.just(MISSING) | st.sampled_from(ODD))
        obj = replaced(obj, path, odd)
    check_odd(resource, obj)


MISSING: Final = object()
IDENTITY = [("metadata", name) for name in ("name", "namespace", "uid", "resourceVersion")] + [
    ("metadata",)
]


class Spied(dict[str, Any]):
    """A dict that notes which of its keys are read."""

    def __init__(self, value: dict[str, Any], path: str, seen: set[str]) -> None:
        super().__init__({key: spied(one, f"{path}.{key}", seen) for key, one in value.items()})
        self._path, self._seen = path, seen

    def get(self, key: Any, default: Any = None) -> Any:
        self._seen.add(f"{self._path}.{key}")
        return super().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        self._seen.add(f"{self._path}.{key}")
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._seen.add(f"{self._path}.{key}")
        return super().__contains__(key)


def spied(value: Any, path: str, seen: set[str]) -> Any:
    if isinstance(value, dict):
        return Spied(value, path, seen)
    if isinstance(value, list):
        return [spied(one, path, seen) for one in value]
    return value


def has(fields: Any, path: list[str]) -> bool:
    """Whether a type has the field of a path; of types that are not TypedDicts, any."""
    if get_origin(fields) in (Union, types.UnionType):
        return any(has(one, path) for one in get_args(fields) if one is not type(None))
    if get_origin(fields) is list:
        return has(get_args(fields)[0], path)
    if not path or not is_typeddict(fields):
        return True
    known = get_type_hints(fields) | ({"spec": ClaimSpecFields} if fields is ClaimFields else {})
    return path[0] in known and has(known[path[0]], path[1:])


@each_kind
def test_every_field_that_is_read_is_in_the_types(
    resource: Resource, obj: Object, fields: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    target = "dray_claim_controller.cache.converted_objects"
    bare = obj | {"metadata": {key: METADATA[key] for key in METADATA if key != "managedFields"}}
    text = msgspec.json.encode(bare)
    if resource is CLAIMS:
        spec = Spied(bare["spec"], ".spec", seen)
        monkeypatch.setattr(f"{target}.claim_spec_fields", lambda _: spec)
        monkeypatch.setattr(f"{target}._SHARED_SPEC_BYTES", 0)
        bare = {**bare, "spec": msgspec.Raw(msgspec.json.encode(bare["spec"]))}
    monkeypatch.setattr(f"{target}.fields_of", lambda *_: Spied(bare, "", seen))
    assert convert_text(resource, text) is not None
    assert {path for path in seen if not has(fields, path[1:].split("."))} == set()
    assert ".metadata.name" in seen


def test_claims_with_equal_specs_share_one() -> None:
    made = [
        convert_text(CLAIMS, msgspec.json.encode(CLAIM | {"metadata": METADATA | {"uid": uid}}))
        for uid in ("one", "two")
    ]
    first, second = (one.value.spec for one in made if one is not None)
    assert first is second
    assert first.requests


def test_pods_with_equal_requirements_share_one() -> None:
    """Those of one template differ in much else."""
    made = []
    for number in (1, 2):
        volumes = [{"name": f"token-{number}", "projected": {}}, {"name": "d", "nfs": {}}]
        container = CONTAINER | {"env": [{"name": "A", "value": str(number)}]}
        spec = POD["spec"] | {"volumes": volumes, "nodeName": f"n{number}"}
        text = msgspec.json.encode(POD | {"spec": spec | {"containers": [container]}})
        made.append(convert_text(PODS, text))
    first, second = (one.value.pod.needs for one in made if one is not None)
    assert first is second
    assert "volume d" in first.unread
    other = convert_text(PODS, msgspec.json.encode(POD | {"spec": POD["spec"] | {"overhead": {}}}))
    assert other is not None
    assert other.value.pod.needs.cpu_milli < first.cpu_milli


def test_long_specs_are_not_kept_for_other_claims() -> None:
    long = {"devices": {"requests": [{"name": "n" * 5000, "exactly": EXACTLY}]}}
    text = msgspec.json.encode(CLAIM | {"spec": long})
    made = [convert_text(CLAIMS, text), convert_text(CLAIMS, text)]
    first, second = (one.value.spec for one in made if one is not None)
    assert first == second
    assert first is not second
