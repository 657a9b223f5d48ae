"""A long list is decoded in steps, and its claims are read at once."""

import asyncio

import pytest

from dray.kube.api_transport import decoded
from dray.kube.convert import claim_from

CONFIGS = 32
CLAIMS = 4
WIDE = b'{"kind":"x","a":[' + b"[]," * 3_000 + b"1]}"
DEEP = b'{"kind":"x","a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


def page(parameters: bytes) -> bytes:
    config = b'{"requests":["gpu"],"opaque":{"driver":"x","parameters":%b}}' % parameters
    item = (
        b'{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"1"},'
        b'"spec":{"devices":{"config":[%b]}}}' % b",".join([config] * CONFIGS)
    )
    return b'{"items":[%b]}' % b",".join([item] * CLAIMS)


@pytest.mark.parametrize("parameters", [WIDE, DEEP])
async def test_other_tasks_run_between_the_parameters_of_a_list(parameters: bytes) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    found = await decoded(page(parameters), "list", 2)
    task.cancel()
    assert len(found["items"]) == CLAIMS
    assert turns >= CONFIGS * CLAIMS


@pytest.mark.parametrize("parameters", [WIDE, DEEP])
async def test_a_claim_with_large_parameters_is_read_like_others(parameters: bytes) -> None:
    found = await decoded(page(parameters), "list", 2)
    claim = claim_from(found["items"][0])
    assert not claim.spec.unsupported
    assert [config.parameters["kind"] for config in claim.spec.config] == ["x"] * CONFIGS


async def test_a_claim_with_large_parameters_may_be_unreadable_for_another_reason() -> None:
    text = page(WIDE).replace(b'"requests":["gpu"]', b'"requests":[1]')
    [claim, *_] = [claim_from(obj) for obj in (await decoded(text, "list", 2))["items"]]
    assert claim.spec.unreadable
