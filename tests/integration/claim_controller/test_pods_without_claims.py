"""Pods that refer to no claim: dray makes the claim that accounts for their devices."""

import random
from typing import Any

import pytest
from tests.integration.claim_controller.kubernetes import POOL
from tests.integration.claim_controller.test_with_allocator import bound, cluster, sold

from dray.api.names import GPU_IDS
from dray.api.pods import Pool, accounting_claim
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, EVENTS, PODS, TEMPLATES
from dray_webhook.decisions.shape import shape_without_devices

__all__ = ["cluster"]
CARD = 312
WITHOUT_DEVICES = shape_without_devices(Pool(name=POOL, uid="1"))


async def test_the_pod_is_bound_with_the_gpus_of_a_claim_that_it_owns(cluster: Any) -> None:
    made = await cluster.pod_without_claims()
    await cluster.until(lambda: bound(cluster), "bound")
    pod = await cluster.kube.get(PODS, "workload", "default")
    claim = await cluster.kube.get(CLAIMS, accounting_claim(made["metadata"]["uid"]), "default")

    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", made["metadata"]["uid"])
    read = claim_from(claim)
    assert read.reserved_for == (made["metadata"]["uid"],)
    (held,) = read.allocation.devices
    assert pod["metadata"]["annotations"][GPU_IDS] == held.id.device
    assert "resourceClaims" not in pod["spec"]
    assert not cluster.names(TEMPLATES)


async def test_a_claim_that_is_deleted_before_the_pod_is_bound_is_made_again(
    cluster: Any,
) -> None:
    whole = cluster.shape(str(CARD), "4Gi")
    for name in ("a", "b"):
        await cluster.pod(name, shape=whole)
    await cluster.until(lambda: len(bound(cluster)) == 2, "both cards are taken")
    made = await cluster.pod_without_claims(shape=whole)
    name = accounting_claim(made["metadata"]["uid"])
    first = await cluster.until(lambda: uid_of(cluster, name), "the claim is there")
    await cluster.kube.delete(CLAIMS, name, "default")

    def is_another() -> bool:
        return uid_of(cluster, name) not in ("", first)

    await cluster.until(is_another, "another claim is there")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_gives_its_gpus_back(cluster: Any, phase: str) -> None:
    """As one that the kubelet rejected, or one of a Job: it exists on."""
    whole = cluster.shape(str(CARD), "4Gi")
    for name in ("a", "b"):
        await cluster.pod_without_claims(name, shape=whole)
    await cluster.until(lambda: len(bound(cluster)) == 2, "both cards are taken")
    await cluster.pod_without_claims("waits", shape=whole)
    await cluster.kube.patch(
        PODS, "a", {"status": {"phase": phase}}, "default", subresource="status"
    )

    await cluster.until(lambda: "waits" in bound(cluster), "the next pod has the card")
    await cluster.kube.get(PODS, "a", "default")
    assert max(sold(cluster).values()) == CARD


async def test_a_pod_with_an_unusable_shape_gets_an_event_and_no_claim(cluster: Any) -> None:
    await cluster.pod_without_claims(shape="{}")

    def is_explained() -> bool:
        events = cluster.kube.store.of(EVENTS).values()
        return any("has no spec" in event.get("message", "") for event in events)

    await cluster.until(is_explained, "an event has the reason")
    assert cluster.names(CLAIMS) == []


@pytest.mark.parametrize("seed", range(3))
async def test_no_card_is_given_twice_to_pods_with_and_without_claims(
    cluster: Any, seed: int
) -> None:
    chance = random.Random(seed)
    for number in range(12):
        shape = cluster.shape(str(chance.choice((80, 150, CARD))), "1Gi")
        if chance.random() < 0.5:
            await cluster.pod(f"pod-{number}", shape=shape)
        else:
            await cluster.pod_without_claims(f"pod-{number}", shape=shape)
        if bound(cluster) and chance.random() < 0.3:
            await end(cluster, chance.choice(sorted(bound(cluster))))
        assert all(amount <= CARD for amount in sold(cluster).values())

    def is_settled() -> bool:
        most = max(sold(cluster).values(), default=0)
        return len(bound(cluster)) >= 2 and most > CARD - 80

    await cluster.until(is_settled, "the cards are filled")
    assert all(amount <= CARD for amount in sold(cluster).values())


async def end(cluster: Any, pod: str) -> None:
    """Delete a pod, and its claim, as Kubernetes does."""
    uid = (await cluster.kube.get(PODS, pod, "default"))["metadata"]["uid"]
    await cluster.kube.delete(PODS, pod, "default")
    for claim in (await cluster.kube.list(CLAIMS, "default")).objects:
        if any(one["uid"] == uid for one in claim["metadata"]["ownerReferences"]):
            name = claim["metadata"]["name"]
            cleared = {"status": {"allocation": None, "reservedFor": None}}
            await cluster.kube.patch(CLAIMS, name, cleared, "default", subresource="status")
            await cluster.kube.delete(CLAIMS, name, "default")
            unfinalized = {"metadata": {"finalizers": None}}
            await cluster.kube.patch(CLAIMS, name, unfinalized, "default")


def uid_of(cluster: Any, claim: str) -> str:
    claims = cluster.kube.store.of(CLAIMS).values()
    return next((c["metadata"]["uid"] for c in claims if c["metadata"]["name"] == claim), "")


async def test_a_pod_without_gpus_is_bound_with_a_claim_that_asks_for_no_device(
    cluster: Any,
) -> None:
    made = await cluster.pod_without_claims(shape=WITHOUT_DEVICES)
    await cluster.until(lambda: bound(cluster), "bound")
    pod = await cluster.kube.get(PODS, "workload", "default")
    claim = await cluster.kube.get(CLAIMS, accounting_claim(made["metadata"]["uid"]), "default")

    read = claim_from(claim)
    assert read.reserved_for == (made["metadata"]["uid"],)
    assert read.allocation.devices == ()
    assert read.allocation.node == pod["spec"]["nodeName"]
    assert GPU_IDS not in pod["metadata"]["annotations"]
