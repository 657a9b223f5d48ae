"""Objects at the API server's limits, and objects that can't be read: each is one object's matter.

The bus takes messages of 1 MiB, as nats-server does if nobody sets ``max_payload``.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dray.api.names import (
    DECISION,
    DEVICE_CLASS,
    DRIVER,
    GPUPOOL,
    POOL_LABEL,
    TEMPLATE_LABEL,
)
from dray.kube.ports import CLAIMS, EVENTS, NODES, PODS, POOLS, SLICES, TEMPLATES, Object
from dray.messages.rpc import LOOKUP_SUBJECT, Lookup, LookupReply

OTHER = "gpus.example.com"
SELECTORS = [{"cel": {"expression": f"'{'y' * 9_900}' == device.driver"}}] * 30
ONE_REQUEST = {"requests": [{"name": "r0", "exactly": {"deviceClassName": OTHER}}]}
TOO_LARGE = "too large for the bus: "


def requests(device_class: str = OTHER, number: int = 4) -> Object:
    """Of 1.2 MB, as kube-apiserver takes them."""
    return {
        "requests": [
            {"name": f"r{n}", "exactly": {"deviceClassName": device_class, "selectors": SELECTORS}}
            for n in range(number)
        ]
    }


def deep(depth: int) -> Object:
    return {"a": msgspec.Raw(b"[" * depth + b"]" * depth)}


def allocation(card: str = "gpu-1", driver: str = DRIVER, pool: str = "node-1") -> Object:
    return {
        "devices": {"results": [{"request": "r0", "driver": driver, "pool": pool, "device": card}]}
    }


async def template(world: Any) -> tuple[Any, str]:
    metadata = {"name": "big", "labels": {TEMPLATE_LABEL: "true"}}
    obj = {"metadata": metadata, "spec": {"spec": {"devices": requests()}}}
    await world.kube.create(TEMPLATES, obj, "default")
    return TEMPLATES, "big"


async def claim(world: Any) -> tuple[Any, str]:
    metadata = {"name": "big", "labels": {POOL_LABEL: "default-pool"}}
    obj = {"metadata": metadata, "spec": {"devices": requests(DEVICE_CLASS)}}
    await world.kube.create(CLAIMS, obj, "default")
    return CLAIMS, "big"


async def allocated_claim(world: Any) -> tuple[Any, str]:
    obj = {"metadata": {"name": "big"}, "spec": {"devices": requests()}}
    await world.kube.create(CLAIMS, obj, "default")
    await allocate(world, "big")
    return CLAIMS, "big"


async def slice_of_another_driver(world: Any) -> tuple[Any, str]:
    devices = [
        {
            "name": f"d{n}",
            "attributes": {f"a{m}-{'x' * 20}": {"string": "v" * 60} for m in range(32)},
        }
        for n in range(400)
    ]
    pool = {"name": "far", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": OTHER, "allNodes": True, "pool": pool, "devices": devices}
    await world.kube.create(SLICES, {"metadata": {"name": "big"}, "spec": spec})
    return SLICES, "big"


async def pod(world: Any) -> tuple[Any, str]:
    shape = world.shape()
    values = [f"{n}{'x' * 60}" for n in range(18_000)]
    expression = {"key": "a", "operator": "NotIn", "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    made = await world.kube.create(
        PODS,
        {
            "metadata": {"name": "big", "annotations": {GPUPOOL: "default-pool"}},
            "spec": {
                "containers": [{"name": "app", "image": "app"}],
                "affinity": affinity,
                "resourceClaims": [
                    {"name": "gpu", "resourceClaimTemplateName": world.template_of(shape)}
                ],
            },
        },
        "default",
    )
    obj = {"metadata": {"name": "of-big", "labels": {POOL_LABEL: "default-pool"}}}
    obj["spec"] = {"devices": requests(DEVICE_CLASS, 0)}
    await world.kube.create(CLAIMS, obj, "default")
    statuses = [{"name": "gpu", "resourceClaimName": "of-big"}]
    patch = {
        "metadata": {"uid": made["metadata"]["uid"]},
        "status": {"resourceClaimStatuses": statuses},
    }
    await world.kube.patch(PODS, "big", patch, "default", subresource="status")
    return PODS, "big"


async def allocate(world: Any, name: str, **more: Any) -> None:
    status = {"status": {"allocation": allocation() | more}}
    await world.kube.patch(CLAIMS, name, status, "default", subresource="status")


async def another_pod_is_bound(world: Any, name: str) -> None:
    await world.pod(name)
    await world.decide(await world.decision(name))
    await world.bound(name)


async def reported(world: Any, resource: Any, name: str, reason: str) -> str:
    """Wait for the event about an object; its message."""

    def found() -> str:
        for obj in world.kube.store.of(EVENTS).values():
            about = obj["involvedObject"]
            if (about["kind"], about["name"], obj["reason"]) == (resource.kind, name, reason):
                return str(obj["message"])
        return ""

    return str(await world.until(found, f"{reason} of {name} is reported"))


Make = Callable[[Any], Awaitable[tuple[Any, str]]]


@pytest.mark.parametrize(
    "make",
    [template, claim, allocated_claim, slice_of_another_driver, pod],
    ids=lambda one: one.__name__,
)
async def test_a_fact_that_is_too_large_is_no_other_objects_matter(world: Any, make: Make) -> None:
    running = await world.ready(await world.start())
    term = running.controller.term
    resource, name = await make(world)
    message = await reported(world, resource, name, "TooLargeForBus")
    assert message.startswith(f"{resource.kind} big: {TOO_LARGE}")
    await another_pod_is_bound(world, "other")
    assert running.controller.term is term
    assert term.ready
    assert len(term.publisher.too_large) == 1

    await running.stop()
    second = await world.ready(await world.start("second"))
    await another_pod_is_bound(world, "later")
    assert second.controller.term.publisher.too_large
    await world.kube.delete(resource, name, "" if resource is SLICES else "default")
    await world.until(lambda: not second.controller.term.publisher.too_large, "it is gone")


async def test_nothing_is_tried_again_until_the_object_changes(world: Any) -> None:
    running = await world.ready(await world.start())
    await claim(world)
    await reported(world, CLAIMS, "big", "TooLargeForBus")
    before = (await world.facts())["claim"]
    await another_pod_is_bound(world, "other")
    after = [one for one in (await world.facts())["claim"] if one["claim"]["name"] == "big"]
    assert after == [one for one in before if one["claim"]["name"] == "big"]
    await world.kube.patch(CLAIMS, "big", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def newer() -> bool:
        return bool((await world.newest("claim", "big"))["revision"] > after[-1]["revision"])

    await world.until(newer, "the changed claim is published")
    assert running.controller.term.ready


async def test_the_devices_of_a_claim_that_is_too_large_count(world: Any) -> None:
    await world.ready(await world.start())
    await allocated_claim(world)
    await reported(world, CLAIMS, "big", "TooLargeForBus")
    fact = await world.newest("claim", "big")
    [device] = fact["claim"]["allocation"]["devices"]
    assert device["id"] == {"driver": DRIVER, "pool": "node-1", "device": "gpu-1"}
    [why] = fact["claim"]["spec"]["unsupported"]
    assert why.startswith(TOO_LARGE)


async def test_a_template_that_is_too_large_is_answered_with_why(world: Any) -> None:
    await world.ready(await world.start())
    await template(world)
    asked = Lookup(kind="template", name="big", namespace="default")
    answer = await world.bus.request(LOOKUP_SUBJECT, msgspec.json.encode(asked), timeout_s=5)
    reply = msgspec.json.decode(answer, type=LookupReply)
    assert reply.template is not None
    assert reply.template.unusable.startswith(TOO_LARGE)


@pytest.mark.parametrize("depth", [2_000, 9_900])
async def test_deep_parameters_are_published_and_written_as_they_are(
    world: Any, depth: int
) -> None:
    running = await world.ready(await world.start())
    config = [{"opaque": {"driver": OTHER, "parameters": deep(depth)}}]
    obj = {"metadata": {"name": "deep"}, "spec": {"devices": ONE_REQUEST | {"config": config}}}
    await world.kube.create(CLAIMS, obj, "default")
    held = allocation()["devices"] | {"config": [{"source": "FromClaim", **config[0]}]}
    await allocate(world, "deep", devices=held)
    await another_pod_is_bound(world, "other")
    await running.stop()
    second = await world.ready(await world.start("second"))
    await another_pod_is_bound(world, "later")
    key = await world.until(
        lambda: next(
            key
            for key in second.controller.term.publisher._outbox.living()
            if key.kind == "claim"
            and second.controller.term.publisher.last(key).claim.name == "deep"
        ),
        "the deep claim is published",
    )
    fact = second.controller.term.publisher.last(key)
    [written] = fact.claim.allocation.config
    assert msgspec.json.encode(written.parameters) == msgspec.json.encode(deep(depth))


async def test_what_an_unreadable_claim_holds_counts_over_restarts(world: Any) -> None:
    """Nobody but dray writes the annotation, unless somebody does."""
    first = await world.ready(await world.start())
    obj = {"metadata": {"name": "odd"}, "spec": {"devices": ONE_REQUEST}}
    await world.kube.create(CLAIMS, obj, "default")
    await allocate(world, "odd")
    metadata = {"annotations": {DECISION: "9" * 5_000}}
    await world.kube.patch(CLAIMS, "odd", {"metadata": metadata}, "default")
    message = await reported(world, CLAIMS, "odd", "Unreadable")
    assert message == (
        "ResourceClaim odd: can't be read: annotation tensor-fusion.ai/decision has 5000 digits, "
        "expected 18 at most: only dray writes it, remove it. Its devices stay allocated, and "
        "nothing further is decided about it"
    )
    await first.stop()
    await world.ready(await world.start("second"))
    await another_pod_is_bound(world, "other")
    for fact in (await world.facts())["claim"]:
        if fact["claim"]["name"] == "odd" and fact["claim"].get("allocation"):
            assert not fact.get("deleted")
    fact = await world.newest("claim", "odd")
    [device] = fact["claim"]["allocation"]["devices"]
    assert device["id"]["device"] == "gpu-1"


async def test_an_unreadable_pool_stays_as_it_was(world: Any) -> None:
    first = await world.ready(await world.start())
    epoch = await world.epoch()
    await world.kube.patch(POOLS, "default-pool", {"spec": {"capacityConfig": [7]}})
    await reported(world, POOLS, "default-pool", "Unreadable")
    await another_pod_is_bound(world, "other")
    await first.stop()
    await world.ready(await world.start("second"))
    await another_pod_is_bound(world, "later")
    assert await world.epoch() == epoch
    assert (await world.newest("node", "node-1"))["node"]["pool"] == "default-pool"


@pytest.mark.parametrize("broken", [{"spec": 5}, {"status": 7}, {"status": {"conditions": [7]}}])
async def test_an_unreadable_node_is_its_own_matter(world: Any, broken: Object) -> None:
    """No API server writes one; a proxy or a fault of its store may."""
    first = await world.ready(await world.start())
    await world.kube.patch(NODES, "node-1", broken)
    await another_pod_is_bound(world, "other")
    await first.stop()
    await world.ready(await world.start("second"))
    await another_pod_is_bound(world, "later")
