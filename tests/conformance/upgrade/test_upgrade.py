"""A running stack whose Kubernetes becomes the next minor, on the same etcd data."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.conformance.left_out import only_where
from tests.conformance.stand import NAMESPACE, Stand, phase_of, results_of, standing

from dray.bus.ports import Bus
from dray.domain import names
from dray.domain.quantities import Quantity, parse_quantity
from dray.kube.ports import BIND_REQUESTS, CLAIMS, NODES, POOLS, Object, RefusedError
from dray.kube.probe import probe
from dray.messages.decisions import log_stream
from dray.messages.facts import ClusterObserved
from dray_sandbox.controlplane.build import MINOR_VARIABLE, MINORS, build, wanted_minor
from dray_sandbox.faults.arena import furnish
from dray_sandbox.faults.plan import DEDICATED, SHARED
from dray_sandbox.layout import StackOptions, simulated_nodes

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]
CARD_TFLOPS, CARD_VRAM = Quantity(100 * 10**9), parse_quantity("16Gi")
"""What each pod asks for."""
BEFORE = ("early-1", "early-2")
FLYING = ("flying-1", "flying-2")
"""Created right before the API server goes; each in a pool where a card is free for it."""
BUSY = "busy"
"""Their pool, dedicated."""
WAITING = "early-waits"
"""Wants both cards of the dedicated pool whole, before and after."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What must be the same after the upgrade."""

    pods: dict[str, tuple[str, str]]
    """Uid and node by name."""
    allocations: dict[str, Object]
    """By claim uid."""
    bind_requests: dict[str, str]
    """Phase by name."""
    epochs: dict[str, int]
    """Of each pool."""
    records: dict[str, list[bytes]]
    """Of each pool's decision log."""
    pids: dict[str, int]


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The stack after the upgrade, and what was seen before it."""

    stand: Stand
    before: Seen
    kept_before: ClusterObserved
    kept: ClusterObserved
    denial: str
    """Why a pod of the shared pool was denied before; empty if it was not."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upgraded() -> AsyncIterator[Upgraded]:
    newer = wanted_minor()
    only_where(newer != MINORS[0], "it is the oldest that dray knows, and nothing is older")
    older = MINORS[MINORS.index(newer) - 1]
    binary = await build(print, newer)
    options = StackOptions(
        name="conformance-upgrade",
        control_plane="real",
        nodes=simulated_nodes(3, gpus=2, models=("A100",), pools=(DEDICATED, SHARED, BUSY)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MINOR_VARIABLE, older)
        async with standing(options) as stand:
            await furnish(stand.kube)
            spec = {"schedulingConfigTemplate": "default-scheduling-config", "dedicated": True}
            await stand.kube.create(POOLS, {"metadata": {"name": BUSY}, "spec": spec})
            yield await _upgraded(stand, binary)


async def _upgraded(stand: Stand, binary: Any) -> Upgraded:
    kept_before = await stand.until(stand.published, "the first probe")
    await _ready(stand)
    for name in BEFORE:
        await stand.submit(name, DEDICATED)
    await stand.running(*BEFORE)
    await stand.submit(WAITING, DEDICATED, gpu_count="2", vram_request="40Gi")
    await stand.until(lambda: _waits(stand, WAITING), "dray says why the greedy pod waits")
    denial = await _denial(stand)

    async def reported() -> bool:
        listed = await stand.kube.list(BIND_REQUESTS, NAMESPACE)
        phases = [_phase_told(one) for one in listed.objects if one["metadata"]["name"] != WAITING]
        return len(phases) >= len(BEFORE) and set(phases) == {"Succeeded"}

    await stand.until(reported, "all BindRequests Succeeded")
    before = await _seen(stand)
    for name in FLYING:
        await stand.submit(name, BUSY)
    await stand.stack.change_version(binary)

    async def asked_anew() -> ClusterObserved | None:
        now = await stand.published()
        return now if now is not None and binary.version in now.version else None

    kept = await stand.until(asked_anew, "the claim-controller asks the new server")
    return Upgraded(stand, before, kept_before, kept, denial)


async def _denial(stand: Stand) -> str:
    """Why a pod of the shared pool can't be; empty when it runs."""
    try:
        await stand.submit("early-shared", SHARED)
    except RefusedError as error:
        return str(error)
    await stand.running("early-shared")
    return ""


async def _ready(stand: Stand) -> None:
    """Wait for both pools' logs and for the slices."""

    async def holds() -> bool:
        pools = (await stand.kube.list(POOLS)).objects
        opened = [pool.get("status", {}).get("decisionLog") for pool in pools]
        return len(opened) == 3 and all(opened) and len(await stand.devices()) == 6

    await stand.until(holds, "all pools are served")


async def _seen(stand: Stand) -> Seen:
    kube = stand.kube
    claims = (await kube.list(CLAIMS, NAMESPACE)).objects
    allocated = [claim for claim in claims if claim.get("status", {}).get("allocation")]
    requests = (await kube.list(BIND_REQUESTS, NAMESPACE)).objects
    epochs = {
        pool["metadata"]["name"]: int(pool["status"]["decisionLog"]["epoch"])
        for pool in (await kube.list(POOLS)).objects
    }
    return Seen(
        pods={
            name: (pod["metadata"]["uid"], pod["spec"]["nodeName"])
            for name, pod in (await stand.pods()).items()
            if phase_of(pod) == "Running"
        },
        allocations={
            claim["metadata"]["uid"]: claim["status"]["allocation"] for claim in allocated
        },
        bind_requests={one["metadata"]["name"]: _phase_told(one) for one in requests},
        epochs=epochs,
        records={pool: await _records(stand.bus, pool, epoch) for pool, epoch in epochs.items()},
        pids=stand.stack.runner.pids(),
    )


def _phase_told(bind_request: Object) -> str:
    return str(bind_request.get("status", {}).get("phase", ""))


async def _records(bus: Bus, pool: str, epoch: int) -> list[bytes]:
    found: list[bytes] = []
    async for delivered in bus.read(log_stream(pool, epoch)):
        found.append(delivered.payload)
        if delivered.pending == 0:
            break
    return found


async def test_nothing_is_lost(upgraded: Upgraded) -> None:
    after, before = await _seen(upgraded.stand), upgraded.before

    assert set(BEFORE) <= before.pods.keys()
    assert after.pods.items() >= before.pods.items()
    assert after.pods.keys() - before.pods.keys() <= set(FLYING)
    assert {uid: after.allocations.get(uid) for uid in before.allocations} == before.allocations
    assert after.bind_requests.items() >= before.bind_requests.items()
    assert after.epochs == before.epochs
    for pool, records in before.records.items():
        assert len(records) >= 1
        assert after.records[pool][: len(records)] == records


async def test_what_was_under_way_is_finished(upgraded: Upgraded) -> None:
    """Whatever dray had come to: a template, a decision, an allocation without a binding."""
    await upgraded.stand.running(*FLYING)

    claims = [await upgraded.stand.claim_of(name) for name in FLYING]
    assert all(claim is not None and results_of(claim) for claim in claims)
    await upgraded.stand.recounted()


async def test_the_services_go_on_as_they_are(upgraded: Upgraded) -> None:
    kubernetes = {"kube-apiserver", "kube-scheduler", "kube-controller-manager"}
    after, before = upgraded.stand.stack.runner.pids(), upgraded.before.pids

    assert {name for name in before if after[name] != before[name]} == kubernetes


async def test_what_the_new_server_keeps_is_published(upgraded: Upgraded) -> None:
    asked = await probe(
        upgraded.stand.kube, NAMESPACE, revision=upgraded.kept.revision, classes=False
    )

    # Beside what the server keeps, the claim-controller says what it does itself.
    assert upgraded.kept == msgspec.structs.replace(asked, waits_for_devices=True)
    assert upgraded.kept.revision > upgraded.kept_before.revision


async def test_the_doctor_shows_one_value(upgraded: Upgraded) -> None:
    said = await _doctor(upgraded.stand)

    assert said["healthy"], said
    graded = {finding["subject"]: finding["grade"] for finding in said["findings"]}
    assert "what the claim-controller believes" not in graded
    assert (graded["fractions of a card"] == "ok") == upgraded.kept.consumable_capacity
    assert (graded["device taints"] == "ok") == upgraded.kept.device_taints


async def test_the_slices_show_what_is_kept_now(upgraded: Upgraded) -> None:
    kept = upgraded.kept

    async def as_kept() -> bool:
        devices = await upgraded.stand.devices()
        return len(devices) == 6 and all(
            ("allowMultipleAllocations" in device) == kept.consumable_capacity
            and all(
                ("requestPolicy" in entry) == kept.consumable_capacity
                for entry in device["capacity"].values()
            )
            and _is_owned(device) == kept.device_taints
            for device in devices
        )

    await upgraded.stand.until(as_kept, f"slices as {kept} says")


async def test_a_card_held_wholly_stays_so_and_the_others_are_shared(upgraded: Upgraded) -> None:
    stand = upgraded.stand
    held = {_card(result) for a in upgraded.before.allocations.values() for result in _results(a)}
    await stand.delete(BEFORE[1])
    room = await _room(stand, DEDICATED, upgraded.kept)
    shared_before, shared = (k.consumable_capacity for k in (upgraded.kept_before, upgraded.kept))
    assert room == {(False, False): 1, (False, True): 2, (True, True): 3}[shared_before, shared]

    fitting = [f"late-{number}" for number in range(room)]
    for name in fitting:
        await stand.submit(name, DEDICATED)
    await stand.running(*fitting)
    await stand.submit("late-too-many", DEDICATED)
    await stand.until(lambda: _waits(stand, "late-too-many"), "the last pod has no room")

    claims = [claim for name in fitting if (claim := await stand.claim_of(name)) is not None]
    cards = [_card(result) for claim in claims for result in results_of(claim)]
    assert len(cards) == len(fitting)
    if not shared_before:
        assert set(cards) == held - {_card(one) for one in _results(await _allocation(stand))}
    for claim in claims:
        for result in results_of(claim):
            assert ("shareID" in result) == shared
        stamped = "allocationTimestamp" in claim["status"]["allocation"]
        assert stamped == upgraded.kept.allocation_timestamp
    assert phase_of((await stand.pods())[BEFORE[0]]) == "Running"
    await stand.recounted()

    await stand.delete(BEFORE[0])
    await stand.running("late-too-many")
    await stand.recounted()
    await stand.delete(*fitting, "late-too-many")


async def test_a_pod_that_waited_over_it_gets_what_it_was_promised_before(
    upgraded: Upgraded,
) -> None:
    """Its claim is older than the upgrade: where cards weren't shared it states no amounts."""
    stand = upgraded.stand

    await stand.running(WAITING)

    claim = await stand.claim_of(WAITING)
    assert claim is not None
    assert len({_card(result) for result in results_of(claim)}) == 2
    assert await _room(stand, DEDICATED, upgraded.kept) == 0
    await stand.recounted()


async def test_shared_nodes_serve_once_taints_are_kept(upgraded: Upgraded) -> None:
    stand = upgraded.stand
    assert bool(upgraded.denial) != upgraded.kept_before.device_taints
    if upgraded.denial:
        assert "taints" in upgraded.denial
    if not upgraded.kept.device_taints:
        with pytest.raises(RefusedError, match="taints"):
            await stand.submit("late-shared", SHARED)
        return

    await stand.submit("late-shared", SHARED)

    await stand.running("late-shared")
    assert (await stand.pods())["late-shared"]["spec"]["nodeName"] == "sim-2"
    await stand.recounted()


async def _room(stand: Stand, pool: str, kept: ClusterObserved) -> int:
    """How many pods the free cards of a pool's nodes hold; a card wholly in use holds none."""
    nodes = await stand.kube.list(NODES, label_selector=f"{names.POOL_LABEL}={pool}")
    members = {node["metadata"]["name"] for node in nodes.objects}
    counted = await stand.recounted()
    return sum(
        min(
            free["virtual_tflops"].nano // CARD_TFLOPS.nano,
            free["virtual_vram"].nano // CARD_VRAM.nano,
            99 if kept.consumable_capacity else 1,
        )
        for device, free in counted.free.items()
        if device[1] in members and device not in counted.wholly
    )


async def _waits(stand: Stand, name: str) -> bool:
    """Whether dray has said why the pod waits."""
    listed = await stand.kube.list(BIND_REQUESTS, NAMESPACE)
    (found,) = [one for one in listed.objects if one["metadata"]["name"] == name] or [{}]
    return bool(found.get("status", {}).get("explanation"))


async def _doctor(stand: Stand) -> Any:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "dray_cli", "doctor", "--output", "json"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"KUBECONFIG": stand.stack.record.kubeconfig},
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


async def _allocation(stand: Stand) -> Object:
    """That of the pod that was there before and stays."""
    claim = await stand.claim_of(BEFORE[0])
    assert claim is not None
    allocation: Object = claim["status"]["allocation"]
    return allocation


def _is_owned(device: Object) -> bool:
    return names.OWNER_TAINT in {taint["key"] for taint in device.get("taints") or ()}


def _results(allocation: Object) -> list[Object]:
    return list(allocation["devices"]["results"])


def _card(result: Object) -> tuple[str, str]:
    return result["pool"], result["device"]
