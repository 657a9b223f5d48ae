"""The upstream Go allocator in the allocator's own fleets.

The peer is Kubernetes' ``k8s.io/dynamic-resource-allocation/structured`` as the oracle has it
(``tests/conformance/oracle/speed_fleet.go``), which reads the fleet from a file: slices, claims
that hold devices, and one claim to be allocated.
"""

import asyncio
import json
import runpy
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from benchmarks.allocator_fleet import Fleet
from dray.api import names
from dray.api.claims import Claim, ClaimSpec
from dray.api.devices import Capacity, Device, ResourceSlice
from dray.api.errors import PermanentError
from dray.kube.convert_claims import allocation_to

KUBERNETES = "1.36"
BUILDING = Path(__file__).parents[1] / "tests" / "conformance" / "oracle" / "building.py"
WITHIN_S = 300
MEASURED = {
    "first fit": "first_fit",
    "every node": "every_node",
    "per pod besides": "new_allocator",
}
Json = dict[str, Any]


class NoPeerError(PermanentError):
    """The Go allocator can't be measured here."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The time in which the Go allocator allocates one claim, in one goroutine. The creation of the
    allocator, once per pod, is not included."""

    fitting: int
    """Nodes that fit."""
    rows: dict[str, dict[str, float]]
    """By operation, medians in microseconds, as in `Taken.row`."""


def build(say: Callable[[str], None], minor: str = KUBERNETES) -> Path:
    """The oracle's command for a minor of Kubernetes, built if necessary.

    Raises:
        NoPeerError: it can't be built here; with the cause.
    """
    try:
        found: Path = asyncio.run(runpy.run_path(str(BUILDING))["build_oracle"](minor, say))
    except PermanentError as error:
        raise NoPeerError(str(error)) from error
    return found


def peer(oracle: Path, fleet: Fleet) -> Peer:
    """Measure the Go allocator in this fleet as it is now.

    Raises:
        NoPeerError: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.json"
        path.write_bytes(msgspec.json.encode(as_published(fleet)))
        done = subprocess.run(
            [str(oracle), "-speed-fleet", str(path)],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    if done.returncode != 0:
        raise NoPeerError(f"the Go allocator failed: {done.stderr.strip()}")
    reported = json.loads(done.stdout)
    rows = {
        what: {"p50": reported[key]["wall_ns"] / 1e3, "cpu p50": reported[key]["thread_ns"] / 1e3}
        for what, key in MEASURED.items()
    }
    return Peer(reported["fitting"], rows)


def as_published(fleet: Fleet) -> Json:
    """The fleet as Kubernetes' objects, with one claim of its first shape to be allocated."""
    nodes = (f"node-{number}" for number in range(fleet.nodes))
    return {
        "slices": [_slice(fleet.slice_of(node)) for node in nodes],
        "classes": [{"metadata": {"name": names.DEVICE_CLASS}, "spec": {}}],
        "allocated": [_held(claim) for claim in fleet.running],
        "claims": [_claim("pod", fleet.shapes[0])],
    }


def _slice(part: ResourceSlice) -> Json:
    pool = {"name": part.pool, "generation": part.generation, "resourceSliceCount": 1}
    devices = [_device(device) for device in part.devices]
    spec = {"driver": part.driver, "pool": pool, "nodeName": part.node, "devices": devices}
    return {"metadata": {"name": part.name}, "spec": spec}


def _device(device: Device) -> Json:
    return {
        "name": device.name,
        "attributes": {name: {"string": value} for name, value in device.attributes.items()},
        "capacity": {name: _capacity(one) for name, one in device.capacity.items()},
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }


def _capacity(one: Capacity) -> Json:
    policy: Json = {"default": one.policy.default if one.policy else None}
    if one.policy and one.policy.valid_values:
        policy["validValues"] = list(one.policy.valid_values)
    if one.policy and one.policy.minimum:
        policy["validRange"] = {"min": one.policy.minimum}
    return {"value": one.value, "requestPolicy": policy}


def _held(claim: Claim) -> Json:
    """The devices that a claim holds. Each share gets an id, as from kube-scheduler."""
    assert claim.allocation is not None
    status = allocation_to(claim.allocation)
    for result in status["devices"]["results"]:
        result["shareID"] = str(uuid5(NAMESPACE_OID, claim.uid))
    return {
        "metadata": {"name": claim.name, "namespace": "ns", "uid": claim.uid},
        "status": {"allocation": status},
    }


def _claim(name: str, spec: ClaimSpec) -> Json:
    requests = list(_requests(spec))
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": requests}},
    }


def _requests(spec: ClaimSpec) -> Iterator[Json]:
    for request in spec.requests:
        exactly = {
            "deviceClassName": request.device_class,
            "allocationMode": "ExactCount",
            "count": request.count,
            "selectors": [{"cel": {"expression": text}} for text in request.selectors],
            "capacity": {"requests": request.capacity},
        }
        yield {"name": request.name, "exactly": exactly}
