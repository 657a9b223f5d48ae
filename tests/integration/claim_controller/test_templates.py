"""Derived templates: made when needed, never trusted, gone when unused."""

from typing import Any

import msgspec
import pytest
from tests.counted import our_pods

from dray.api.names import CLAIM_REFERENCE, DERIVED_FROM_LABEL, SHAPE, TEMPLATE_READY
from dray.kube.ports import CLAIMS, EVENTS, PODS, TEMPLATES
from dray.messages.rpc import DERIVE_SUBJECT, Derive, DeriveReply
from dray.runtime.clock import ManualClock
from dray_claim_controller.settings import Publishing


def reported(world: Any, reason: str) -> list[str]:
    """Messages of the events of a reason."""
    events = world.kube.store.of(EVENTS).values()
    return [event["message"] for event in events if event["reason"] == reason]


async def test_the_template_is_made_from_the_pods_shape(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod("first")
    await world.pod("second")
    await world.until(lambda: len(world.names(CLAIMS)) == 2, "both claims")

    (template,) = world.kube.store.of(TEMPLATES).values()
    assert template["metadata"]["name"] == world.template_of(world.shape())
    assert template["metadata"]["labels"][DERIVED_FROM_LABEL] == "base"
    exactly = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["capacity"]["requests"] == {"virtual_tflops": "100", "virtual_vram": "16Gi"}


async def test_a_template_made_thirty_seconds_late_reaches_old_controllers(
    bare_world: Any,
) -> None:
    """The controller was away; kube-controller-manager 1.34 looks at pods only."""
    world = bare_world()
    await world.base()
    world.make_claims(on_template=False)
    clock = ManualClock()
    await world.pod()
    try:
        await clock.advance(30.0)
        running = await world.start(clock=clock)

        async def claimed() -> bool:
            await clock.advance(1.0)
            return bool(world.names(CLAIMS))

        await world.until(claimed, "the claim is made after the touch")
        pod = await world.kube.get(PODS, "workload", "default")
        assert pod["metadata"]["annotations"][TEMPLATE_READY] == world.template_of(world.shape())

        await world.decide(await world.decision())

        async def bound() -> Any:
            await clock.advance(1.0)
            pod = await world.kube.get(PODS, "workload", "default")
            return pod["spec"].get("nodeName")

        assert await world.until(bound, "the pod is bound") == "node-1"
        assert len(our_pods(running.controller.informers.cache)) == 1
    finally:
        await world.close()


async def test_a_template_that_differs_is_reported_and_not_trusted(bare_world: Any) -> None:
    """Its claim is not made before dray has seen the pod."""
    world = bare_world()
    await world.base()
    shape = world.shape()
    forged = {
        "metadata": {"name": world.template_of(shape), "namespace": "default"},
        "spec": {"metadata": {"labels": {}}, "spec": {"devices": {"requests": []}}},
    }
    await world.kube.create(TEMPLATES, forged, "default")
    try:
        await world.ready(await world.start())
        await world.pod("victim")

        (message,) = await world.until(lambda: reported(world, "TemplateDiffers"), "the event")
        assert "Delete it" in message
    finally:
        await world.close()


async def test_a_shape_that_does_not_match_its_hash_is_reported(world: Any) -> None:
    await world.ready(await world.start())
    spec = {
        "containers": [{"name": "x"}],
        "resourceClaims": [
            {"name": CLAIM_REFERENCE, "resourceClaimTemplateName": "base-0123456789"}
        ],
    }
    metadata = {"name": "forged", "namespace": "default", "annotations": {SHAPE: world.shape()}}
    await world.kube.create(PODS, {"metadata": metadata, "spec": spec}, "default")

    (message,) = await world.until(lambda: reported(world, "ShapeUnusable"), "the event")
    assert "has the hash" in message
    assert not world.names(TEMPLATES)


async def test_waiting_pods_get_an_event_for_a_replaced_base_template(world: Any) -> None:
    base = {
        "metadata": {
            "name": "base",
            "namespace": "default",
            "labels": {"tensor-fusion.ai/resource-claim-template": "true"},
        },
        "spec": {"spec": {"devices": {}}},
    }
    await world.kube.create(TEMPLATES, base, "default")
    await world.ready(await world.start())
    await world.pod()
    await world.until(lambda: world.names(CLAIMS), "the pod waits with its claim")
    await world.kube.delete(TEMPLATES, "base", "default")
    await world.kube.create(TEMPLATES, base, "default")

    (message,) = await world.until(lambda: reported(world, "BaseTemplateReplaced"), "the event")
    assert "default/base" in message


async def test_a_pod_whose_template_and_claim_were_deleted_gets_a_template_again(
    world: Any,
) -> None:
    await world.ready(await world.start())
    await world.pod()
    claim = await world.until(lambda: world.claim(), "the claim")
    template = world.template_of(world.shape())
    await world.kube.delete(TEMPLATES, template, "default")
    await world.kube.delete(CLAIMS, claim["metadata"]["name"], "default")

    await world.until(lambda: template in world.names(TEMPLATES), "the template, again")
    pod = await world.kube.get(PODS, "workload", "default")
    assert pod["metadata"]["annotations"][TEMPLATE_READY] == template


async def test_an_unused_derived_template_is_deleted_after_a_minute(bare_world: Any) -> None:
    world = bare_world()
    await world.base()
    world.make_claims()
    clock = ManualClock()
    await world.start(clock=clock, publishing=Publishing(report_every=1.0))
    await world.pod()
    try:

        async def claimed() -> bool:
            await clock.advance(0.5)
            return bool(world.names(CLAIMS))

        await world.until(claimed, "the claim")
        await world.kube.delete(PODS, "workload", "default", grace_period_s=0)
        for _ in range(55):
            await clock.advance(1.0)
        assert world.names(TEMPLATES), "kept for a minute"

        async def gone() -> bool:
            await clock.advance(1.0)
            return not world.names(TEMPLATES)

        await world.until(gone, "the template is deleted")
    finally:
        await world.close()


async def derive(world: Any, shape: str, template: str = "") -> str:
    """The error of the answer; empty if the template exists."""
    asked = Derive(namespace="default", template=template or world.template_of(shape), shape=shape)
    answer = await world.bus.request(DERIVE_SUBJECT, msgspec.json.encode(asked), timeout_s=5.0)
    return msgspec.json.decode(answer, type=DeriveReply).error


@pytest.mark.parametrize("leads", [True, False])
async def test_the_webhook_gets_the_template_before_there_is_a_pod(world: Any, leads: bool) -> None:
    await world.ready(await world.start())
    if not leads:
        await world.start("two")
        await world.running[0].stop()

    assert await derive(world, world.shape()) == ""
    assert await derive(world, world.shape()) == "", "a second request finds it"

    assert world.names(TEMPLATES) == [world.template_of(world.shape())]
    await world.pod()
    await world.until(lambda: world.names(CLAIMS), "the claim")
    assert len(world.names(TEMPLATES)) == 1
    assert not [one for one in world.kube.store.of(EVENTS).values() if one["type"] == "Warning"]


@pytest.mark.parametrize(
    ("shape", "template", "error"),
    [
        ('{"spec":{}}', "base-0000000000", "has the hash"),
        ("not json", "", "is not JSON"),
        ("[]", "", "has no spec"),
    ],
)
async def test_no_template_is_made_of_a_wrong_request(
    world: Any, shape: str, template: str, error: str
) -> None:
    await world.ready(await world.start())

    assert error in await derive(world, shape, template)
    assert world.names(TEMPLATES) == []
