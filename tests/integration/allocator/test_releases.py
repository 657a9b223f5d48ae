"""Replicas of releases N and N−1 share facts and logs. What N−1 can't decode it leaves to N."""

import asyncio
from contextlib import aclosing
from typing import Any, Literal

import msgspec
import pytest
from tests.integration.allocator.cluster import POOL, Cluster, Replica

from dray.bus.topology import DEAD_STREAM
from dray.messages.base import Delivered, Outgoing, encode, subject_of
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    PodDecision,
    Record,
    Release,
    Released,
    Waiting,
    decode_record,
    encode_record,
    log_stream,
    log_subject,
)
from dray.messages.facts import ClaimObserved, NodeObserved

OTHER = "other"


class Preempted(Record, frozen=True, kw_only=True, tag="preempted"):
    """A record of release N: an allocation at the cost of somebody else's."""

    urgency: Literal["high", "low"]
    pods: tuple[PodDecision, ...]


class Newer:
    """How release N reads a log."""

    def record_of(self, domain: str, epoch: int, delivered: Delivered) -> AnyRecord:
        known = AnyRecord | Preempted
        made = msgspec.json.decode(_older(delivered.payload), type=known)
        if not isinstance(made, Preempted):
            return made
        return Decided(
            domain=made.domain,
            epoch=made.epoch,
            writer=made.writer,
            facts_sequence=made.facts_sequence,
            now_unix_s=made.now_unix_s,
            policy_version=0,
            pods=made.pods,
        )

    def written(self, sequence: int, payload: bytes, record: AnyRecord) -> None:
        """Nothing is remembered."""

    def forget(self, domain: str) -> None:
        """Nothing is remembered."""


def _older(payload: bytes) -> bytes:
    """Values that N added, as those that mean the same to its core."""
    return payload.replace(b'"why":"preempted"', b'"why":"voided"').replace(
        b'"binder":"a-third-one"', b'"binder":"dray"'
    )


async def newer(cluster: Cluster, name: str) -> Replica:
    replica = await cluster.replica(name)
    replica.shell._logs._own = Newer()  # type: ignore[assignment]
    return replica


async def two_pools(cluster: Cluster) -> None:
    await cluster.add_pool(OTHER)
    await cluster.node("n1", cards=2)
    await cluster.node("n2", cards=2, pool=OTHER)


async def append(cluster: Cluster, payload: bytes) -> None:
    state = await cluster.bus.state(log_stream(POOL, 1))
    assert state is not None
    message = Outgoing(log_subject(POOL, 1), payload)
    await cluster.bus.append(message, expected_last=state.last_sequence)


def head(facts_sequence: int = 1) -> dict[str, Any]:
    return {
        "domain": POOL,
        "epoch": 1,
        "writer": "newer",
        "facts_sequence": facts_sequence,
        "now_unix_s": 1_000_001.0,
    }


async def decided(cluster: Cluster, uid: str, pool: str = POOL) -> PodDecision:
    """The decision about a pod, once there is one, whatever release wrote the records around it."""
    async with asyncio.timeout(60):
        while True:
            for one in await records(cluster, pool):
                for pod in one.pods if isinstance(one, Decided) else ():
                    if pod.pod_uid == uid:
                        return pod
            await asyncio.sleep(0.01)


async def records(cluster: Cluster, pool: str = POOL) -> list[AnyRecord]:
    stream = log_stream(pool, 1)
    state = await cluster.bus.state(stream)
    assert state is not None
    found: list[AnyRecord] = []
    async for delivered in cluster.bus.read(stream):
        found.append(Newer().record_of(pool, 1, delivered))
        if delivered.sequence == state.last_sequence:
            break
    return found


def devices(decision: PodDecision) -> set[str]:
    return {share.id.device for claim in decision.claims for share in claim.allocation.devices}


async def letters(cluster: Cluster) -> list[str]:
    """What the doctor gets."""
    state = await cluster.bus.state(DEAD_STREAM)
    if state is None or not state.last_sequence:
        return []
    found = []
    async with aclosing(cluster.bus.read(DEAD_STREAM)) as messages:  # type: ignore[type-var]
        async for delivered in messages:
            found.append(delivered.headers["dray-dead-reason"])
            if not delivered.pending:
                return found
    return found


def new_value(pod: PodDecision) -> bytes:
    """A decision with a value of a field that N−1 does not know."""
    payload = encode_record(Decided(**head(), policy_version=0, pods=(pod,)))
    return payload.replace(b'"binder":"dray"', b'"binder":"a-third-one"')


def taking(pod: PodDecision, device: str) -> PodDecision:
    """Of another pod and claim, the same of another device."""
    text = msgspec.json.encode(pod).decode()
    (old,) = devices(pod)
    text = text.replace(old, device).replace(pod.pod_uid, "taken")
    return msgspec.json.decode(text, type=PodDecision)


@pytest.mark.parametrize("form", ["a type of record", "a value of a field"])
async def test_what_an_older_replica_can_t_decode_it_is_neither_given_again_nor_stops_others(
    memory_cluster: Cluster, eventually: Any, form: str
) -> None:
    cluster = memory_cluster
    await two_pools(cluster)
    old = await cluster.replica("old")
    await eventually(lambda: old.serves and old.serves_pool(OTHER))
    await cluster.submit("first")
    first = await decided(cluster, "first")
    (other_card,) = {"n1-gpu0", "n1-gpu1"} - devices(first)
    taken = taking(first, other_card)
    claim = old.state.facts.claims["c-first"]
    claim = msgspec.structs.replace(claim, uid="c-taken", name="taken-gpu", pod_uid="taken")
    await cluster.publish(ClaimObserved(revision=cluster.next(), claim=claim))
    if form == "a type of record":
        await append(cluster, encode_record(Preempted(**head(), urgency="high", pods=(taken,))))  # type: ignore[arg-type]
    else:
        await append(cluster, new_value(taken))
    await cluster.submit("second")
    await cluster.submit("elsewhere", pool=OTHER)

    await decided(cluster, "elsewhere", OTHER)
    await eventually(lambda: POOL in old.shell._serving.undecodable)
    assert not old.serves
    assert old.serves_pool(OTHER)
    assert old.shell.problem is None
    assert "pools left to other replicas: pool: record" in (old.shell.undecodable or "")
    assert old.metrics.undecodable._value.get() == 1
    (letter,) = await letters(cluster)
    assert letter.startswith("allocator old does not serve pool pool: record")
    pods = [one.pod_uid for r in await records(cluster) if isinstance(r, Decided) for one in r.pods]
    assert pods == ["first", "taken"]

    new = await newer(cluster, "new")
    await eventually(lambda: new.serves)

    async def waits() -> bool:
        found = [one for one in await records(cluster) if isinstance(one, Waiting)]
        return any(one.pod_uid == "second" for one in found)

    await eventually(waits)
    assert old.serves_pool(OTHER)
    assert OTHER in old.shell._serving._leased  # Its lease goes on being renewed.


async def test_a_release_of_an_unknown_kind_frees_nothing_for_an_older_replica(
    memory_cluster: Cluster, eventually: Any
) -> None:
    cluster = memory_cluster
    await cluster.node("n1")
    old = await cluster.replica("old")
    await eventually(lambda: old.serves)
    await cluster.submit("first")
    first = await decided(cluster, "first")
    claim = first.claims[0]
    release = Release(claim_uid=claim.uid, attempt=claim.attempt, why="voided")
    payload = encode_record(Released(**head(), releases=(release,)))
    await append(cluster, payload.replace(b'"why":"voided"', b'"why":"preempted"'))
    await cluster.submit("second")
    await eventually(lambda: POOL in old.shell._serving.undecodable)
    assert not old.serves
    assert [uid for uid, _ in old.state.device_usage.claims()] == [claim.uid]


async def test_an_older_replica_never_takes_the_pool_again_in_this_epoch(
    memory_cluster: Cluster, eventually: Any
) -> None:
    cluster = memory_cluster
    await two_pools(cluster)
    old = await cluster.replica("old")
    await eventually(lambda: old.serves and old.serves_pool(OTHER))
    await append(cluster, b'{"record":"preempted"}')
    await eventually(lambda: POOL in old.shell._serving.undecodable)
    lease = "domain.pool"
    await eventually(lambda: lease not in cluster.bus.server.leases)  # type: ignore[attr-defined]
    for _ in range(5):
        await cluster.tick()
        old.shell._serving.hurry()
        await asyncio.sleep(0)
        assert lease not in cluster.bus.server.leases  # type: ignore[attr-defined]

    await cluster.open_log(2)
    await eventually(lambda: old.serves)
    assert old.shell.undecodable is None


async def test_newer_replicas_serve_all_that_an_older_one_can_t(
    memory_cluster: Cluster, eventually: Any
) -> None:
    """It does not count among those that share the work, or what it leaves were nobody's."""
    cluster = memory_cluster
    pools = ("p1", "p2", "p3")
    for pool in pools:
        await cluster.add_pool(pool)
    old = await cluster.replica("old")
    await eventually(lambda: all(old.serves_pool(pool) for pool in (POOL, *pools)))
    for pool in pools:
        state = await cluster.bus.state(log_stream(pool, 1))
        assert state is not None
        message = Outgoing(log_subject(pool, 1), b'{"record":"preempted"}')
        await cluster.bus.append(message, expected_last=state.last_sequence)
    new = await cluster.replica("new")

    class Reads(Newer):
        def record_of(self, domain: str, epoch: int, delivered: Delivered) -> AnyRecord:
            if delivered.payload == b'{"record":"preempted"}':
                return Released(**{**head(), "domain": domain}, releases=())
            return decode_record(delivered.payload)

    new.shell._logs._own = Reads()  # type: ignore[assignment]
    await eventually(lambda: all(new.serves_pool(pool) for pool in pools))
    assert old.serves


def undecodable(fact: Any, **changes: Any) -> Outgoing:
    """The fact with a field of another type."""
    message = encode(fact, source="/c")
    content = msgspec.json.decode(message.payload)
    for name, value in changes.items():
        content[name] = {**content[name], **value}
    return Outgoing(message.subject, msgspec.json.encode(content), message.headers)


async def test_a_claim_s_fact_stops_its_pool_alone_until_it_can_be_decoded(
    memory_cluster: Cluster, eventually: Any
) -> None:
    cluster = memory_cluster
    await two_pools(cluster)
    old = await cluster.replica("old")
    await eventually(lambda: old.serves and old.serves_pool(OTHER))
    await cluster.submit("first")
    await decided(cluster, "first")
    claim = old.state.facts.claims["c-first"]
    fact = ClaimObserved(revision=cluster.next(), claim=claim)
    await cluster.bus.publish(undecodable(fact, claim={"reserved_for": "somebody"}))
    await cluster.submit("second", pool=OTHER)
    await decided(cluster, "second", OTHER)
    await eventually(lambda: POOL in old.shell._serving.undecodable)
    assert old.shell.problem is None
    assert [uid for uid, _ in old.state.device_usage.claims()] == ["c-first", "c-second"]
    assert subject_of(fact) in (old.shell.undecodable or "")

    await cluster.publish(ClaimObserved(revision=cluster.next(), claim=claim))
    await eventually(lambda: old.serves)
    assert old.shell.undecodable is None


async def test_a_node_s_fact_stops_the_pools_that_it_is_in_and_was_in(
    memory_cluster: Cluster, eventually: Any
) -> None:
    """An older replica would place on it as well as the newer one that serves its next pool."""
    cluster = memory_cluster
    await two_pools(cluster)
    await cluster.add_pool("third")
    old = await cluster.replica("old")
    await eventually(lambda: all(old.serves_pool(pool) for pool in (POOL, OTHER, "third")))
    node = msgspec.structs.replace(old.state.facts.nodes["n1"].node, pool=OTHER)
    fact = NodeObserved(revision=cluster.next(), node=node)
    await cluster.bus.publish(undecodable(fact, node={"taints": "some"}))
    await eventually(lambda: {POOL, OTHER} <= {*old.shell._serving.undecodable})
    assert {*old.shell._serving.undecodable} == {POOL, OTHER}
    await eventually(lambda: old.serves_pool("third"))


async def test_a_class_stops_all_pools_and_the_replica_is_not_ready(
    memory_cluster: Cluster, eventually: Any
) -> None:
    cluster = memory_cluster
    await two_pools(cluster)
    old = await cluster.replica("old")
    await eventually(lambda: old.serves and old.serves_pool(OTHER))
    subject = "dray.state.deviceclass.v1.x"
    await cluster.bus.publish(Outgoing(subject, b'{"revision": "nonsense"}'))
    await eventually(lambda: old.shell.problem is not None)
    assert "no pool can be served" in (old.shell.problem or "")
    assert not old.serves
    assert not old.serves_pool(OTHER)


async def test_a_replica_that_stays_away_from_a_pool_does_not_take_it_again_and_again(
    memory_cluster: Cluster, eventually: Any
) -> None:
    """Two replicas share the pools, so each reads its own; who left a pool forgets its facts."""
    cluster = memory_cluster
    pools = (POOL, OTHER, "p3", "p4")
    for pool in pools[1:]:
        await cluster.add_pool(pool)
    for number, pool in enumerate(pools):
        await cluster.node(f"m{number}", pool=pool)
    one = await cluster.replica("one")
    two = await cluster.replica("two")

    def share() -> bool:
        return all(
            sum(replica.serves_pool(pool) for pool in pools) == 2
            and not replica.state.subscriptions.everything
            for replica in (one, two)
        )

    await eventually(share)
    left = next(pool for pool in pools if one.serves_pool(pool))
    await cluster.submit("x", pool=left)
    claim_uid = "c-x"
    await eventually(lambda: claim_uid in one.state.facts.claims)
    claim = one.state.facts.claims[claim_uid]
    fact = ClaimObserved(revision=cluster.next(), claim=claim)
    await cluster.bus.publish(undecodable(fact, claim={"reserved_for": "somebody"}))
    await eventually(lambda: left in one.shell._serving.undecodable)
    await eventually(lambda: left in two.shell._serving.undecodable)
    lease = f"domain.{left}"
    await eventually(lambda: lease not in cluster.bus.server.leases)  # type: ignore[attr-defined]
    for _ in range(20):
        await cluster.tick()
        one.shell._serving.hurry()
        two.shell._serving.hurry()
        await asyncio.sleep(0.01)
        assert lease not in cluster.bus.server.leases  # type: ignore[attr-defined]
    others = [pool for pool in pools if pool != left]
    await eventually(lambda: all(one.serves_pool(pool) or two.serves_pool(pool) for pool in others))
