"""A running stack whose Kubernetes becomes the next minor, on the same etcd data."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from tests.conformance.stand import NAMESPACE, Stand, phase_of, results_of
from tests.conformance.upgrade.upgraded import BEFORE, FLYING, WAITING, Upgraded, see, waits

from dray.api import names
from dray.api.quantities import Quantity, parse_quantity
from dray.kube.ports import NODES, Object, RefusedError
from dray.kube.probe import probe
from dray.messages.facts import ClusterObserved
from tools.faults.plan import DEDICATED, SHARED

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]
CARD_TFLOPS, CARD_VRAM = Quantity(100 * 10**9), parse_quantity("16Gi")
"""What each pod asks for."""


async def test_nothing_is_lost(upgraded: Upgraded) -> None:
    after, before = await see(upgraded.stand), upgraded.before

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

    # In addition to the server's features, the claim-controller publishes its own.
    assert upgraded.kept == msgspec.structs.replace(asked, waits_for_devices=True)
    assert upgraded.kept.revision > upgraded.kept_before.revision


async def test_the_doctor_shows_one_value(upgraded: Upgraded) -> None:
    stated = await _doctor(upgraded.stand)

    assert stated["healthy"], stated
    graded = {finding["subject"]: finding["grade"] for finding in stated["findings"]}
    assert "the claim-controller's findings" not in graded
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
    await stand.until(lambda: waits(stand, "late-too-many"), "the last pod has no room")

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
