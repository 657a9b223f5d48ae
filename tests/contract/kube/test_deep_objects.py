"""Objects nested up to 10 000 levels deep, and text that is not Unicode: the server stores both."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from dray.kube.ports import (
    CLAIMS,
    PODS,
    Changed,
    ConflictError,
    Listed,
    RefusedError,
)

DEPTHS = (1_000, 2_000, 5_000)
"""Opaque parameters take 10 KiB at most."""


def parameters(depth: int) -> msgspec.Raw:
    return msgspec.Raw(b'{"a":' + b"[" * depth + b"]" * depth + b"}")


def with_parameters(claim: dict[str, Any], value: Any) -> dict[str, Any]:
    opaque = {"driver": "gpus.example.com", "parameters": value}
    claim["spec"]["devices"]["config"] = [{"opaque": opaque}]
    return claim


def parameters_of(claim: dict[str, Any]) -> Any:
    [config] = claim["spec"]["devices"]["config"]
    return config["opaque"]["parameters"]


def text_of(claim: dict[str, Any]) -> bytes:
    return msgspec.json.encode(parameters_of(claim))


async def first_of(kube, namespace: str) -> tuple[Listed, asyncio.Task[Any]]:
    """What a watch begins with, and its next event."""
    watch = kube.watch(CLAIMS, namespace)
    listed = await anext(watch)
    assert isinstance(listed, Listed)

    async def following() -> Any:
        async with aclosing(watch) as events:
            return await anext(events)

    return listed, asyncio.create_task(following())


@pytest.mark.parametrize("depth", DEPTHS)
async def test_deep_parameters_are_handed_out_as_they_were_sent(world, kube, bodies, depth) -> None:
    sent = parameters(depth)
    made = await kube.create(CLAIMS, with_parameters(bodies.claim(), sent), world.namespace)
    assert text_of(made) == bytes(sent)
    assert await kube.get(CLAIMS, "c", world.namespace) == made
    assert (await kube.list(CLAIMS, world.namespace)).objects == (made,)


async def test_a_deep_object_hides_no_other_from_lists_and_watches(world, kube, bodies) -> None:
    deep = with_parameters(bodies.claim("deep"), parameters(5_000))
    await kube.create(CLAIMS, bodies.claim("before"), world.namespace)
    await kube.create(CLAIMS, deep, world.namespace)
    listed, coming = await first_of(kube, world.namespace)
    assert [one["metadata"]["name"] for one in listed.objects] == ["before", "deep"]
    patch = {"metadata": {"labels": {"x": "y"}}}
    patched = await kube.patch(CLAIMS, "deep", patch, world.namespace)
    assert text_of(patched) == bytes(parameters(5_000))
    async with asyncio.timeout(30):
        assert await coming == Changed(patched)


async def test_a_deep_object_can_be_written_back(world, kube, bodies) -> None:
    deep = with_parameters(bodies.claim(), parameters(5_000))
    made = await kube.create(CLAIMS, deep, world.namespace)
    made["metadata"]["labels"] = {"x": "y"}
    updated = await kube.update(CLAIMS, made)
    assert updated["metadata"]["labels"] == {"x": "y"}
    assert text_of(updated) == bytes(parameters(5_000))
    with pytest.raises(ConflictError):
        await kube.update(CLAIMS, made)


async def test_deep_configuration_of_an_allocation_is_kept(world, kube, bodies) -> None:
    await kube.create(CLAIMS, bodies.claim(), world.namespace)
    opaque = {"driver": "gpus.example.com", "parameters": parameters(5_000)}
    allocation = bodies.allocation()
    allocation["devices"]["config"] = [{"source": "FromClaim", "opaque": opaque}]
    status = {"status": {"allocation": allocation}}
    await kube.patch(CLAIMS, "c", status, world.namespace, subresource="status")
    [found] = (await kube.list(CLAIMS, world.namespace)).objects
    [config] = found["status"]["allocation"]["devices"]["config"]
    assert msgspec.json.encode(config["opaque"]["parameters"]) == bytes(parameters(5_000))


async def test_deep_managed_fields_of_a_pod_hide_no_other(world, kube, bodies) -> None:
    fields = b'{"f:metadata":' + b'{"f:a":' * 9_900 + b"{}" + b"}" * 9_901
    entry = {
        "manager": "somebody",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": msgspec.Raw(fields),
    }
    pod = bodies.pod("deep")
    pod["metadata"]["managedFields"] = [entry]
    await kube.create(PODS, pod, world.namespace)
    await kube.create(PODS, bodies.pod("plain"), world.namespace)
    listed = await kube.list(PODS, world.namespace)
    assert [one["metadata"]["name"] for one in listed.objects] == ["deep", "plain"]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b'{"a":"x\xffy"}', {"a": "x�y"}),
        (b'{"a\xff":"x"}', {"a�": "x"}),
        (b'{"a":"\\ud800x"}', {"a": "�x"}),
    ],
)
async def test_text_that_is_not_unicode_hides_no_other(world, kube, bodies, sent, read) -> None:
    await kube.create(CLAIMS, bodies.claim("plain"), world.namespace)
    odd = with_parameters(bodies.claim("odd"), msgspec.Raw(sent))
    assert parameters_of(await kube.create(CLAIMS, odd, world.namespace)) == read
    listed = (await kube.list(CLAIMS, world.namespace)).objects
    assert [one["metadata"]["name"] for one in listed] == ["odd", "plain"]
    assert parameters_of(listed[0]) == read


async def test_more_than_10_000_levels_are_refused(world, kube, bodies) -> None:
    sent = msgspec.Raw(b'{"a":' * 10_001 + b"1" + b"}" * 10_001)
    claim = bodies.claim() | {"status": sent}
    with pytest.raises(RefusedError, match="exceeded max depth"):
        await kube.create(CLAIMS, claim, world.namespace)
