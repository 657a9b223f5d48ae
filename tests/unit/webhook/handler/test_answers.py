"""Facts from the bus, look-ups before a negative answer, and the event, over a bus in memory."""

import asyncio

import pytest
from tests.unit.webhook.handler.stack import POLICY, POOL

from dray.api.names import BASE_TEMPLATE
from dray.api.pods import Policy, Pool
from dray.bus.topology import EVENTS_STREAM, FACTS_STREAM, STREAMS
from dray.messages.base import Outgoing, decode
from dray.messages.events import PodRequested
from dray.messages.facts import PolicyObserved, PoolObserved
from dray.messages.rpc import Lookup, LookupReply
from dray_webhook.decisions.view import DEFAULT_POOL

P = "tensor-fusion.ai/"


async def test_nothing_is_answered_before_everything_was_read_once(stack, pod, request_of):
    await stack.publish(PoolObserved, pool=POOL)

    answer = await stack.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert (answer.allowed, answer.code) == (False, 503)
    assert "is not ready: no pools, policies and templates" in answer.message
    assert stack.cache.problem is not None

    await stack.sync()
    await stack.until(lambda: stack.cache.problem is None)


async def test_a_pod_is_admitted_from_memory_without_a_question(ready, pod, request_of):
    await ready.answer_lookups()

    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert answer.allowed
    assert ready.asked == []


async def test_pool_policy_template_and_pod_in_one_file_work(stack, pod, request_of, template_of):
    await stack.sync()
    await stack.until(lambda: stack.cache.view.synced)
    await stack.answer_lookups()
    stack.exists = {
        Lookup(kind="pool", name="shared"): LookupReply(pool=POOL),
        Lookup(kind="policy", name="on"): LookupReply(policy=POLICY),
        Lookup(kind="template", name=BASE_TEMPLATE, namespace="team-a"): LookupReply(
            template=template_of("team-a")
        ),
    }

    answer = await stack.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert answer.allowed, answer.message
    assert answer.requested.understood["base"] == f"team-a/{BASE_TEMPLATE}"
    assert stack.cache.view.pools == {}


async def test_a_policy_switched_on_in_the_same_file_works(ready, pod, request_of):
    off = Policy(name="on", uid="2", claim_template=BASE_TEMPLATE)
    await ready.publish(PolicyObserved, policy=off)
    await ready.until(lambda: not ready.cache.view.policies["on"].dra_enabled)
    await ready.answer_lookups()
    ready.exists = {
        Lookup(kind="pool", name="shared"): LookupReply(pool=POOL),
        Lookup(kind="policy", name="on"): LookupReply(policy=POLICY),
    }

    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert answer.allowed, answer.message


async def test_what_does_not_exist_is_denied_after_one_question(ready, pod, request_of):
    await ready.answer_lookups()

    answer = await ready.webhook.mutate_pod(request_of(pod({P + "gpupool": "no"})), timeout_s=5)

    assert (answer.allowed, answer.code) == (False, 400)
    assert ready.asked == [Lookup(kind="pool", name="no")]
    assert "could not make sure" not in answer.message


async def test_no_answer_in_time_is_reported(ready, pod, request_of):
    answer = await ready.webhook.mutate_pod(request_of(pod({P + "gpupool": "no"})), timeout_s=5)

    assert (answer.allowed, answer.code) == (False, 503)
    assert "the claim-controller did not answer in" in answer.message


async def test_a_default_pool_of_the_same_file_is_looked_up(ready, pod, request_of):
    await ready.answer_lookups()
    default = Pool(name="d", uid="9", template="on", default=True)
    ready.exists = {DEFAULT_POOL: LookupReply(pool=default)}

    answer = await ready.webhook.mutate_pod(request_of(pod({P + "gpupool": None})), timeout_s=5)

    assert answer.allowed, answer.message
    assert answer.requested.pool == "d"


async def test_without_a_default_pool_the_denial_follows_one_question(ready, pod, request_of):
    await ready.answer_lookups()
    webhook = ready.new_webhook(lookup_timeout_s=1e6)

    answer = await webhook.mutate_pod(request_of(pod({P + "gpupool": None})), timeout_s=4e6)

    assert (answer.allowed, answer.code) == (False, 400)
    assert ready.asked == [DEFAULT_POOL]


async def test_a_deleted_pool_is_forgotten(ready, pod, request_of):
    await ready.publish(PoolObserved, pool=POOL, deleted=True)

    await ready.until(lambda: not ready.cache.view.pools)


async def test_with_the_bus_away_answers_come_from_memory(ready, pod, request_of):
    ready.bus.disconnect()

    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert answer.allowed
    assert len(ready.backlog) == 1

    ready.bus.reconnect()
    await ready.until(lambda: len(ready.backlog) == 0)
    assert (await ready.controller.state(EVENTS_STREAM)).last_sequence == 1


async def test_with_the_bus_away_the_oldest_events_go_first(ready, pod, request_of):
    ready.bus.disconnect()
    for number in range(5):
        await ready.webhook.mutate_pod(request_of(pod(), uid=f"review-{number}"), timeout_s=5)

    assert (len(ready.backlog), ready.backlog.dropped) == (3, 2)


async def test_a_recreated_facts_stream_is_read_again_while_the_old_view_serves(
    ready, pod, request_of
):
    await ready.controller.delete_stream(FACTS_STREAM)
    for spec in STREAMS:
        await ready.controller.ensure(spec)
    await ready.publish(PoolObserved, pool=Pool(name="new", uid="9"))

    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)
    assert answer.allowed

    await ready.sync()
    await ready.until(lambda: list(ready.cache.view.pools) == ["new"])


async def test_the_event_tells_what_was_understood(ready, pod, request_of):
    answer = await ready.webhook.mutate_pod(request_of(pod()), timeout_s=5)
    async with asyncio.timeout(30):
        delivered = await anext(aiter(ready.controller.read(EVENTS_STREAM)))

    event = decode(delivered, PodRequested)
    assert (event.request_id, event.pool, event.name) == ("review-1", "shared", "train")
    assert event.template == answer.requested.template
    assert event.traceparent == delivered.headers["traceparent"] == answer.requested.traceparent


async def test_dry_run_publishes_nothing(ready, pod, request_of):
    answer = await ready.webhook.mutate_pod(request_of(pod(), dryRun=True), timeout_s=5)

    assert answer.patch != ()
    assert len(ready.backlog) == 0


@pytest.mark.parametrize(("ratio", "flag"), [(0.25, "01"), (0.2, "00")])
async def test_sampling_is_decided_here(ready, pod, request_of, ratio, flag):
    webhook = ready.new_webhook(sampling_ratio=ratio, draw=lambda: 0.2)

    answer = await webhook.mutate_pod(request_of(pod()), timeout_s=5)

    assert answer.requested.traceparent.endswith(f"-{flag}")


async def test_a_fact_that_cannot_be_read_is_left_out(ready):
    await ready.controller.publish(Outgoing("dray.state.pool.v1.odd", b"{}"))
    await ready.publish(PoolObserved, pool=Pool(name="next", uid="9"))

    await ready.until(lambda: "next" in ready.cache.view.pools)
