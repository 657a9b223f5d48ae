"""A pod's template is made before the pod is admitted; without it the pod is admitted, too."""

import asyncio

import pytest

from dray.api.names import SHAPE
from dray.messages.rpc import Derive

P = "tensor-fusion.ai/"


def shape_of(answer):
    """What the patch writes to the pod."""
    (text,) = (
        change["value"][SHAPE] if isinstance(change["value"], dict) else change["value"]
        for change in answer.patch
        if change["path"].endswith("shape") or SHAPE in (change.get("value") or ())
    )
    return text


async def test_the_template_of_the_patch_is_asked_for(ready, pod, request_of):
    await ready.make_templates()

    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert answer.allowed
    assert ready.derived == [
        Derive(
            namespace="team-a",
            template=answer.requested.template,
            shape=shape_of(answer),
            traceparent=answer.requested.traceparent,
        )
    ]


async def test_nothing_is_asked_about_a_known_shape(ready, pod, request_of):
    await ready.make_templates()

    for tflops in ("100", "100", "200", "100"):
        asked = request_of(pod({P + "tflops-request": tflops}))
        assert (await ready.webhook.mutate_pod(asked, timeout_s=5)).allowed

    assert len({one.template for one in ready.derived}) == len(ready.derived) == 2


async def test_pods_of_a_new_shape_that_come_together_ask_once(ready, pod, request_of):
    held = asyncio.Event()
    await ready.make_templates(held=held)
    webhook = ready.new_webhook(lookup_timeout_s=5.0)

    pods = [
        asyncio.create_task(webhook.mutate_pod(request_of(pod()), timeout_s=20)) for _ in range(3)
    ]
    await ready.until(lambda: ready.derived)
    assert not any(one.done() for one in pods)
    held.set()

    assert all(answer.allowed for answer in await asyncio.gather(*pods))
    assert len(ready.derived) == 1


async def test_a_dry_run_asks_for_nothing(ready, pod, request_of):
    await ready.make_templates()

    answer = await ready.webhook.mutate_pod(request_of(pod(), dryRun=True), timeout_s=5)

    assert answer.allowed
    assert ready.derived == []


@pytest.mark.parametrize("error", ["", "the server refuses it"])
async def test_a_pod_is_admitted_although_its_template_is_not_made(ready, pod, request_of, error):
    if error:
        await ready.make_templates(error)
    webhook = ready.new_webhook(lookup_timeout_s=0.01)

    for _ in range(3):
        assert (await webhook.mutate_pod(request_of(pod()), timeout_s=5)).allowed

    assert len(ready.derived) == (1 if error else 0), "a failure rests"


async def test_a_denied_pod_gets_no_template(ready, pod, request_of):
    await ready.make_templates()

    denied = request_of(pod({P + "tflops-request": "much"}))

    assert not (await ready.webhook.mutate_pod(denied, timeout_s=5)).allowed
    assert ready.derived == []
