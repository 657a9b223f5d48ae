"""What reading and keeping the worst objects costs, by size, compared with ordinary ones:
nobody's objects may take the claim-controller's time from everybody's."""

import asyncio
import copy
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.conformance.limits.objects import (
    ANNOTATIONS_BYTES,
    DEEPEST,
    NAMESPACE,
    PARAMETERS_BYTES,
    annotations,
    claim,
    managed,
    nested,
    of_size,
    request,
)

from dray.api import names
from dray.kube.api_transport import PageReader
from dray.kube.ports import CLAIMS, PODS, Listed, Object, Resource
from dray_claim_controller.cache.object_cache import ObjectCache

MOST_TIMES = 10.0
"""How much more CPU time per byte than ordinary objects."""
PAIRS = 5
"""How often an odd object and an ordinary one are measured one after the other: other work on the
machine slows both. One pair within the limit is enough."""
LIST_BYTES = 1_500_000
_CONFIGS = 32
"""So many entries the config of a claim may have."""


def configured(parameters: bytes) -> Object:
    config = {"opaque": {"driver": names.DRIVER, "parameters": msgspec.Raw(parameters)}}
    return claim({"requests": [request()], "config": [config] * _CONFIGS})


def filled(entry: bytes, end: bytes) -> bytes:
    """Parameters as long as they may be, of equal entries in an array."""
    most = (PARAMETERS_BYTES - 10 - len(end)) // (len(entry) + 1)
    return b'{"a":[' + b",".join([entry] * most) + b"]" + end + b"}"


def many_keys() -> bytes:
    return b"{" + b",".join(b'"%d":0' % key for key in range(1_000)) + b"}"


def wide_managed() -> Object:
    found = managed(3)
    wide = b"{" + b",".join(b'"f:%d":{}' % key for key in range(100_000)) + b"}"
    found["managedFields"][0]["fieldsV1"] = msgspec.Raw(wide)
    return found


def pod(container: Object | None = None, number: int = 1, **spec: Any) -> Object:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "claims": [{"name": "gpu"}]}
    containers = [{"name": f"c{n}", "image": "x", "resources": resources} for n in range(number)]
    return {
        "metadata": {"name": "odd", "annotations": {}},
        "spec": {
            "containers": [one | (container or {}) for one in containers],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "odd"}],
            **spec,
        },
    }


def with_metadata(obj: Object, more: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **more}}


CLAIM_MANAGED = {"managedFields": managed(8)["managedFields"] * 3}
ODD_CLAIMS: dict[str, Callable[[], Object]] = {
    "deep managed fields": lambda: claim(**managed(DEEPEST - 100)),
    "managed fields a bit too deep": lambda: claim(
        managedFields=managed(300)["managedFields"] * 100
    ),
    "wide managed fields": lambda: claim(**wide_managed()),
    "deep parameters": lambda: configured(nested(PARAMETERS_BYTES // 2 - 4)),
    "parameters a bit too deep": lambda: configured(nested(300)),
    "parameters of many arrays": lambda: configured(filled(b"[]", b"")),
    "parameters of many objects": lambda: configured(filled(b'{"kind":""}', b"")),
    "such parameters with deep ones": lambda: configured(
        filled(b'{"kind":""}', b',"b":' + b"[" * 300 + b"]" * 300)
    ),
    "parameters of many keys": lambda: configured(many_keys()),
    "numbers out of range": lambda: configured(filled(b"1e400", b"")),
    "a number of many digits": lambda: configured(b'{"a":' + b"9" * 10_000 + b"}"),
    "escapes": lambda: configured(filled(rb'"\"\\\ud83d\ude00"', b"")),
    "no Unicode": lambda: configured(filled(b'"\xff"', b"")),
    "half surrogates": lambda: configured(filled(rb'"\ud800"', b"")),
    "annotations": lambda: claim(annotations=annotations(ANNOTATIONS_BYTES)),
    "long selectors": lambda: claim(of_size(1_200_000)),
    "many requests": lambda: claim({"requests": [request(f"gpu-{n}") for n in range(32)]}),
}
TOLERATION = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
ODD_PODS: dict[str, Callable[[], Object]] = {
    "deep managed fields": lambda: with_metadata(pod(), managed(DEEPEST - 100)),
    "many containers": lambda: pod(number=1_000),
    "many ports": lambda: pod({"ports": [{"containerPort": n, "hostPort": n} for n in range(999)]}),
    "many tolerations": lambda: pod(tolerations=[TOLERATION] * 5_000),
    "many node selectors": lambda: pod(nodeSelector={f"k{n}": "v" for n in range(5_000)}),
    "many overheads": lambda: pod(overhead={f"example.com/k{n}": "1" for n in range(5_000)}),
}


def listed(obj: Object) -> bytes:
    """A page of copies of an object, of about ``LIST_BYTES``."""
    number = max(1, LIST_BYTES // len(msgspec.json.encode(obj)))
    items = []
    for index in range(number):
        metadata = copy.copy(obj["metadata"])
        metadata |= {"name": f"odd-{index}", "namespace": NAMESPACE, "uid": f"uid-{index}"}
        items.append({**obj, "metadata": metadata | {"resourceVersion": str(index + 1)}})
    return msgspec.json.encode({"metadata": {"resourceVersion": str(number)}, "items": items})


async def folded(resource: Resource, data: bytes) -> ObjectCache:
    picture = ObjectCache()
    transform = picture.transform(resource)
    page = await PageReader(transform=transform).read(data, "list")
    items = enumerate(page.items)
    listed = tuple(page.made.get(number) or transform.convert(obj) for number, obj in items)
    for _ in picture.apply_list(resource, Listed(listed, len(listed))):
        pass
    return picture


def cpu_per_byte(resource: Resource, data: bytes) -> float:
    began_s = time.process_time()
    asyncio.run(folded(resource, data))
    return (time.process_time() - began_s) / len(data)


@pytest.fixture(scope="module")
def ordinary() -> dict[Resource, bytes]:
    """Pages of ordinary objects."""
    kept = claim(**CLAIM_MANAGED)
    return {CLAIMS: listed(kept), PODS: listed(with_metadata(pod(), CLAIM_MANAGED))}


def assert_costs_by_its_size(resource: Resource, odd: Object, ordinary: bytes) -> None:
    data, times = listed(odd), list[float]()
    while not times or (times[-1] > MOST_TIMES and len(times) < PAIRS):
        times.append(cpu_per_byte(resource, data) / cpu_per_byte(resource, ordinary))
    assert times[-1] <= MOST_TIMES, times


@pytest.mark.parametrize("odd", ODD_CLAIMS.values(), ids=ODD_CLAIMS)
def test_a_claim_costs_by_its_size(
    ordinary: dict[Resource, bytes], odd: Callable[[], Object]
) -> None:
    assert_costs_by_its_size(CLAIMS, odd(), ordinary[CLAIMS])


@pytest.mark.parametrize("odd", ODD_PODS.values(), ids=ODD_PODS)
def test_a_pod_costs_by_its_size(
    ordinary: dict[Resource, bytes], odd: Callable[[], Object]
) -> None:
    assert_costs_by_its_size(PODS, odd(), ordinary[PODS])
