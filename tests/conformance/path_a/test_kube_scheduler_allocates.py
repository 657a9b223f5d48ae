"""Path A: kube-scheduler allocates from dray's slices, and dray only prepares for it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.left_out import only_where, only_where_taints_are_kept
from tests.conformance.path_a.conftest import (
    BIG,
    CARDS,
    EXAMPLE,
    POLICY,
    SMALL,
    gone_after,
    until_untainted,
)
from tests.conformance.stand import NAMESPACE, Stand, recount, results_of

from dray.api import names
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    TEMPLATES,
    AlreadyExistsError,
    Object,
    RefusedError,
)
from dray.messages.decisions import Opened, decode_record, log_stream
from dray.messages.facts import ClusterObserved
from dray_cli.demo.manifests import read_manifests

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.real,
    pytest.mark.timeout(600),
]
HALF = {"vram_request": "20Gi"}
"""Of a card of 40Gi."""
PAGES = Path(__file__).parents[3] / "examples" / "03-kube-scheduler"
ANY_CARD = f'device.driver == "{names.DRIVER}"'


@pytest.mark.parametrize("count", [1, 2, 4, 8])
async def test_a_pod_gets_its_cards(stand: Stand, keeps: ClusterObserved, count: int) -> None:
    async with gone_after(stand) as made:
        made.append(name := f"takes-{count}")
        await stand.submit(name, BIG, gpu_count=str(count))
        await stand.running(name)

        pod = await stand.kube.get(PODS, name, NAMESPACE)
        claim = await _claim(stand, name)
        results = results_of(claim)
        assert pod["spec"]["schedulerName"] == names.DEFAULT_SCHEDULER
        assert "schedulingGates" not in pod["spec"]
        assert pod["spec"]["nodeName"] == "sim-1"
        assert len({result["device"] for result in results}) == len(results) == count
        if keeps.consumable_capacity:
            taken = {"virtual_tflops": "100", "virtual_vram": "16Gi"}
            assert all(taken.items() <= result["consumedCapacity"].items() for result in results)
        await _comes_from_the_derived_template(stand, pod, claim)
        # None of it was dray's decision.
        annotations = claim["metadata"].get("annotations") or {}
        assert not {names.DECISION, names.VOID} & annotations.keys()
        assert [user["uid"] for user in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        await _has_reason(stand, name)


async def test_shares_are_given_out_until_the_cards_are_full(
    stand: Stand, keeps: ClusterObserved
) -> None:
    """Whole cards where the server keeps no shares, and the doctor says so."""
    room = CARDS["sim-2"] * (2 if keeps.consumable_capacity else 1)
    async with gone_after(stand) as made:
        made += [f"share-{number}" for number in range(room)]
        for name in made:
            await stand.submit(name, SMALL, **HALF)
        await stand.running(*made)
        made.append("too-many")
        await stand.submit("too-many", SMALL, **HALF)
        await stand.until(lambda: _is_refused(stand, "too-many"), "kube-scheduler's refusal")
        await _nothing_is_oversold(stand)
        if keeps.consumable_capacity:
            is_reported = _dray("explain", "pod/too-many", stand)
            assert is_reported["decides"] == "kube-scheduler"
            assert "virtual_vram (20Gi asked): 2 of 2 devices" in "\n".join(is_reported["reasons"])

        await stand.kube.delete(PODS, made.pop(0), NAMESPACE)
        await stand.running("too-many")
        await _nothing_is_oversold(stand)


async def test_a_pod_shares_the_card_in_use_if_its_pool_packs(
    stand: Stand, keeps: ClusterObserved
) -> None:
    """kube-scheduler takes the first card that fits; without an order that is the emptied one."""
    only_where(keeps.consumable_capacity, "cards are not shared")
    async with placed_by(stand, "CompactFirst"), gone_after(stand) as made:
        made += ["emptied", "stays", "lands"]
        for name in made[:2]:
            await stand.submit(name, BIG, vram_request="30Gi")
            await stand.running(name)
        in_use = await _card_of(stand, "stays")
        assert in_use != await _card_of(stand, "emptied")
        await stand.delete("emptied")
        await stand.until(lambda: _is_at(stand, in_use, 0), "the card in use comes first")
        await stand.submit("lands", BIG, vram_request="5Gi")
        await stand.running("lands")
        assert await _card_of(stand, "lands") == in_use


async def test_a_pod_gets_an_empty_card_if_its_pool_spreads(
    stand: Stand, keeps: ClusterObserved
) -> None:
    """Without an order, kube-scheduler would take the same card again."""
    only_where(keeps.consumable_capacity, "cards are not shared")
    async with placed_by(stand, "LowLoadFirst"), gone_after(stand) as made:
        made += ["stays", "lands"]
        await stand.submit("stays", BIG, vram_request="5Gi")
        await stand.running("stays")
        in_use = await _card_of(stand, "stays")
        await stand.until(lambda: _is_at(stand, in_use, -1), "the card in use comes last")
        await stand.submit("lands", BIG, vram_request="5Gi")
        await stand.running("lands")
        assert await _card_of(stand, "lands") != in_use


async def test_the_doctor_says_whether_cards_are_shared(
    stand: Stand, keeps: ClusterObserved
) -> None:
    found = {line["subject"]: line for line in _dray("doctor", "", stand)["findings"]}
    line = found["fractions of a card"]
    if keeps.consumable_capacity:
        assert line["grade"] == "ok"
    else:
        assert line["grade"] == "lesser"
        assert "pods get whole cards" in line["text"]


async def test_a_pod_that_no_card_matches_waits_with_kube_schedulers_reason(stand: Stand) -> None:
    async with gone_after(stand) as made:
        made.append("fits-nowhere")
        await stand.submit("fits-nowhere", BIG, gpu_model="H100")

        why = await stand.until(lambda: _is_refused(stand, "fits-nowhere"), "the refusal")

        assert "cannot allocate all claims" in why
        is_reported = _dray("explain", "pod/fits-nowhere", stand)
        assert is_reported["schedulerSays"] == why
        assert is_reported["decides"] == "kube-scheduler"
        (clause,) = is_reported["reasons"]
        assert 'model == "H100"' in clause
        assert "is false: 8 of 8 devices" in clause


@pytest.mark.parametrize("expression", ["", ANY_CARD], ids=["generated", "by its taint alone"])
async def test_an_unhealthy_card_is_not_allocated(
    stand: Stand, keeps: ClusterObserved, health_of: Callable[[str], Path], expression: str
) -> None:
    only_where_taints_are_kept(keeps.device_taints or not expression)
    sick, asked = health_of("sim-2"), HALF
    if expression:
        asked = HALF | {"dra_cel_expression": expression}
    async with gone_after(stand) as made:
        sick.write_text("0 xid-79\n")
        try:
            (name,) = await stand.until(lambda: _sick(stand), "a card is sick")
            healthy = 2 if keeps.consumable_capacity else 1
            made += [f"other-{number}" for number in range(healthy)]
            for pod in made:
                await stand.submit(pod, SMALL, **asked)
            await stand.running(*made)
            made.append("needs-the-sick-one")
            await stand.submit(made[-1], SMALL, **asked)
            await stand.until(lambda: _is_refused(stand, made[-1]), "kube-scheduler's refusal")
            claims = await stand.kube.list(CLAIMS)
            held = [result["device"] for claim in claims.objects for result in results_of(claim)]
            assert name not in held
        finally:
            sick.unlink()
        await stand.running(made[-1])


@pytest.mark.parametrize(
    ("asked", "scheduler", "says"),
    [
        ({}, names.DRAY_SCHEDULER, "leave spec.schedulerName out, or name a pool that dray owns"),
        ({"dra_enabled": "false"}, "", "which gives GPUs only to claims"),
    ],
)
async def test_what_only_dray_could_do_is_refused(
    stand: Stand, asked: dict[str, str], scheduler: str, says: str
) -> None:
    annotations = {
        names.GPUPOOL: BIG,
        names.TFLOPS_REQUEST: "100",
        names.VRAM_REQUEST: "16Gi",
        **{f"{names.PREFIX}{name.replace('_', '-')}": value for name, value in asked.items()},
    }
    spec = {"containers": [{"name": "app", "image": "app"}], "schedulerName": scheduler or None}
    pod = {"metadata": {"name": "refused", "annotations": annotations}, "spec": spec}

    with pytest.raises(RefusedError) as refusal:
        await stand.kube.create(PODS, pod, NAMESPACE)

    assert says in str(refusal.value)
    assert 'GPUPool "big" is owned by kube-scheduler' in str(refusal.value)


async def test_the_pool_names_its_owner_and_placement(stand: Stand) -> None:
    async def ready() -> Object | None:
        status = (await stand.kube.get(POOLS, BIG)).get("status") or {}
        found = {condition["type"]: condition for condition in status.get("conditions") or ()}
        return found.get("Ready") if status.get("owner") == "kube-scheduler" else None

    condition = await stand.until(ready, "the pool's status")

    assert (condition["status"], condition["reason"]) == ("True", "FirstFit")
    assert "the first that fit" in condition["message"]


async def test_the_example_does_what_its_page_says(stand: Stand, keeps: ClusterObserved) -> None:
    for manifest in read_manifests(PAGES, "01-*"):
        with contextlib.suppress(AlreadyExistsError):  # the base template is everybody's
            await stand.kube.create(manifest.resource, manifest.object, manifest.namespace)
    await until_untainted(stand, {"sim-3"})
    async with gone_after(stand) as made:
        for manifest in read_manifests(PAGES, "02-*"):
            await stand.kube.create(manifest.resource, manifest.object, manifest.namespace)
            if manifest.resource == PODS:
                made.append(manifest.object["metadata"]["name"])
        await stand.running("half-a-card", "two-cards", "by-hand")
        await stand.until(lambda: _is_refused(stand, "fits-nowhere"), "kube-scheduler's refusal")

        await _nothing_is_oversold(stand)
        (whole,) = results_of(await stand.kube.get(CLAIMS, "one-whole-card", NAMESPACE))
        if keeps.consumable_capacity:
            assert whole["consumedCapacity"]["virtual_vram"] == "40Gi"
        (clause,) = _dray("explain", "pod/fits-nowhere", stand)["reasons"]
        assert "is false: 5 of 5 devices" in clause


async def test_the_allocator_wrote_nothing_about_any_of_it(stand: Stand) -> None:
    """The last test: the others' pods are all there was to decide about."""
    for pool in (BIG, SMALL, EXAMPLE):
        epoch = (await stand.kube.get(POOLS, pool))["status"]["decisionLog"]["epoch"]
        stream = log_stream(pool, epoch)
        records: list[Any] = []
        async for delivered in stand.bus.read(stream):
            records.append(decode_record(delivered.payload))
            if not delivered.pending:
                break
        assert [record for record in records if not isinstance(record, Opened)] == []


@contextlib.asynccontextmanager
async def placed_by(stand: Stand, mode: str) -> AsyncIterator[None]:
    """Pools have this placement for the length of the block."""
    await stand.kube.patch(POLICIES, POLICY, {"spec": {"placement": {"mode": mode}}})
    try:
        yield
    finally:
        await stand.kube.patch(POLICIES, POLICY, {"spec": {"placement": None}})


async def _card_of(stand: Stand, pod: str) -> str:
    (result,) = results_of(await _claim(stand, pod))
    return str(result["device"])


async def _is_at(stand: Stand, card: str, index: int) -> bool:
    """Whether the node of the big pool publishes the card there."""
    listed = await stand.kube.list(SLICES, field_selector="spec.nodeName=sim-1")
    order = [device["name"] for part in listed.objects for device in part["spec"]["devices"]]
    return bool(order) and order[index] == card


async def _claim(stand: Stand, pod: str) -> Object:
    claim = await stand.claim_of(pod)
    assert claim is not None
    return claim


async def _comes_from_the_derived_template(stand: Stand, pod: Object, claim: Object) -> None:
    (reference,) = pod["spec"]["resourceClaims"]
    template = await stand.kube.get(TEMPLATES, reference["resourceClaimTemplateName"], NAMESPACE)
    assert template["metadata"]["labels"][names.DERIVED_FROM_LABEL] == names.BASE_TEMPLATE
    assert claim["spec"] == template["spec"]["spec"]
    (owner,) = claim["metadata"]["ownerReferences"]
    assert owner["uid"] == pod["metadata"]["uid"]


async def _has_reason(stand: Stand, pod: str) -> None:
    """The user guide's success indicators hold for both allocators."""

    async def is_reported() -> bool:
        claim = await _claim(stand, pod)
        events = await stand.kube.list(
            EVENTS, NAMESPACE, field_selector=f"involvedObject.name={pod},reason=GPUAllocated"
        )
        announced = (claim["metadata"].get("annotations") or {}).get(names.ALLOCATED) == "true"
        return announced and "Successfully assigned" in "".join(
            event["message"] for event in events.objects
        )

    await stand.until(is_reported, f"annotation and event of {pod}")


async def _is_refused(stand: Stand, pod: str) -> str:
    """Why kube-scheduler doesn't place the pod; empty before its first answer."""
    status = (await stand.kube.get(PODS, pod, NAMESPACE)).get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return ""


async def _sick(stand: Stand) -> list[str]:
    return [
        device["name"]
        for device in await stand.devices()
        if device["attributes"]["phase"]["string"] != "Running"
    ]


async def _nothing_is_oversold(stand: Stand) -> None:
    slices, claims = await stand.kube.list(SLICES), await stand.kube.list(CLAIMS)
    recount(slices.objects, claims.objects)


def _dray(verb: str, target: str, stand: Stand) -> Any:
    command = [sys.executable, "-m", "dray_cli", verb, *([target] if target else [])]
    command += ["--kubeconfig", stand.stack.record.kubeconfig, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)
