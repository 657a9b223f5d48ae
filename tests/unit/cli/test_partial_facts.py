"""``dray doctor`` names the objects whose facts are too large for the bus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dray.api.claims import TOO_LARGE, Claim, ClaimSpec
from dray.api.names import DRIVER
from dray.api.pods import NodeExpression, Pod, PodNeeds
from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS
from dray.kube.memory import MemoryKube
from dray.kube.ports import SLICES
from dray.messages.base import encode
from dray.messages.facts import (
    ClaimObserved,
    Fact,
    PodObserved,
    SliceObserved,
    Synced,
    TemplateObserved,
)
from dray_claim_controller.cache.resources import read
from dray_cli.doctor import verb
from dray_cli.doctor.partial_facts import SUBJECT, partial_facts_finding

WHY = f"{TOO_LARGE}2000000 bytes as a fact, 1048576 at most (max_payload of NATS)"
LAST = Synced(revision=9, instance="controller")


def slice_object() -> dict[str, Any]:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"metadata": {"name": "s"}, "spec": spec}


def claim_fact(name: str, spec: ClaimSpec, *, deleted: bool = False) -> ClaimObserved:
    one = Claim(name, "team", name, resource_version=1, pool="", spec=spec)
    return ClaimObserved(revision=1, claim=one, deleted=deleted)


def template_fact(name: str, why: str) -> TemplateObserved:
    return TemplateObserved(
        revision=1, namespace="team", name=name, labels={}, spec={}, unusable=why
    )


async def bus_with(*facts: Fact) -> MemoryBus:
    bus = MemoryBus()
    for spec in STREAMS:
        await bus.ensure(spec)
    for fact in (*facts, LAST):
        await bus.publish(encode(fact, source="test", correlation_id=""))
    return bus


async def finding(*facts: Fact, objects: tuple[dict[str, Any], ...] = ()) -> Any:
    bus, kube = await bus_with(*facts), MemoryKube()
    for obj in objects:
        await kube.create(SLICES, obj)
    return await partial_facts_finding(bus, kube)


async def test_every_reduced_object_is_named_with_its_reason() -> None:
    needs = PodNeeds(node_terms=((NodeExpression(WHY, "In"),),))
    pod = Pod("p", "team", "p", resource_version=1, pool="", scheduler="", needs=needs)
    found = await finding(
        claim_fact("large", ClaimSpec(unsupported=(WHY,))),
        claim_fact("small", ClaimSpec()),
        template_fact("base", WHY),
        template_fact("odd", "another reason"),
        PodObserved(revision=1, pod=pod),
    )

    assert (found.subject, found.grade) == (SUBJECT, "lesser")
    assert found.text.startswith("3 objects larger than a message (max_payload of NATS)")
    assert found.more == (
        f"claim team/large: {WHY}",
        f"pod team/p: {WHY}",
        f"template team/base: {WHY}",
    )


async def test_a_deleted_object_is_not_named() -> None:
    found = await finding(claim_fact("large", ClaimSpec(unsupported=(WHY,)), deleted=True))

    assert found.grade == "ok"


async def test_a_slice_without_its_devices_is_named() -> None:
    written = slice_object()
    known = read(SLICES, written)[0]
    assert known is not None
    empty = await finding(
        SliceObserved(revision=1, slice=msgspec.structs.replace(known, devices=())),
        objects=(written,),
    )
    complete = await finding(SliceObserved(revision=1, slice=known), objects=(written,))

    assert empty.more == (f"slice s: {TOO_LARGE}published without its devices",)
    assert complete.grade == "ok"


async def test_without_facts_nothing_is_known() -> None:
    found = await partial_facts_finding(MemoryBus(), MemoryKube())

    assert (found.grade, found.text) == ("unseen", "the stream DRAY_FACTS does not exist")


async def test_the_doctor_reports_it_without_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = await bus_with(claim_fact("large", ClaimSpec(unsupported=(WHY,))))

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[MemoryBus]:
        yield bus

    monkeypatch.setattr(verb, "open_bus", connected)
    seen = await verb._bus(MemoryKube(), "nats://here", None, None, deep=False)

    assert [one.more for one in seen.findings if one.subject == SUBJECT] == [
        (f"claim team/large: {WHY}",)
    ]
