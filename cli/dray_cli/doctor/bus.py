"""The doctor's checks of the bus."""

import asyncio

from dray.bus.payload import payload_problem
from dray.bus.ports import Bus, BusUnavailableError, StoreUse, StreamMissingError, StreamState
from dray.bus.store_limit import store_problem
from dray.bus.topology import DEAD_STREAM, FACTS_STREAM, STREAMS
from dray.kube.ports import Object
from dray.messages.base import decode, subject_prefix
from dray.messages.decisions import log_stream
from dray.messages.facts import ClusterObserved, Tick
from dray_cli.doctor.findings import Finding
from dray_cli.text import counted

AREA = "The bus"
_READ_S = 10.0
"""Time-out for reading an existing message."""
_SILENT_S = 20.0
"""Longer than a change of leaders takes, and longer than two machines' clocks should differ."""


async def look_at_bus(bus: Bus, pools: tuple[Object, ...]) -> list[Finding]:
    """Check the streams of the topology, the decision log of each pool, the bytes of all these
    streams, and dead letters."""
    return [
        payload_finding(bus),
        await store_finding(bus, pools),
        *[await _stream_finding(bus, spec.name, spec.purpose) for spec in STREAMS],
        *[await log_finding(bus, pool) for pool in pools],
        *await _dead_letters(bus),
    ]


def not_checked(why: str) -> Finding:
    """The finding if nothing says where the bus is."""
    return Finding(AREA, "connection", "unseen", why)


def not_reached(why: str) -> Finding:
    """The finding if the bus does not answer: it is broken."""
    text = f"{why}; if dray's services can't reach it either, nothing new is decided meanwhile"
    return Finding(AREA, "connection", "broken", text)


async def leader_finding(bus: Bus, now_unix_s: float) -> Finding:
    """Whether a claim-controller leads, by the age of its newest tick: it sends one a second."""
    subject = "a claim-controller leads"
    try:
        newest = await bus.last(FACTS_STREAM, subject_prefix(Tick))
    except StreamMissingError:
        newest = None
    except BusUnavailableError as error:
        # Streams are read through a claim-controller: if none runs, none leads.
        return Finding(AREA, subject, "broken", str(error))
    if newest is None:
        text = "no claim-controller has led yet: nothing is observed or carried out; does one run?"
        return Finding(AREA, subject, "broken", text)
    age_s = now_unix_s - newest.time_unix_s
    if age_s > _SILENT_S:
        text = (
            f"its last heartbeat is {age_s:.0f} s old: nothing is observed or carried out; "
            "does one run, and what does its log say? nats-server with a full disk stores none, "
            "either"
        )
        return Finding(AREA, subject, "broken", text)
    return Finding(AREA, subject, "ok")


async def _stream_finding(bus: Bus, name: str, purpose: str) -> Finding:
    """Whether a stream exists, and the number of its last message."""
    state = await bus.state(name)
    if state is None:
        text = f"missing ({purpose}): the claim-controller makes it when it starts; does one run?"
        return Finding(AREA, name, "broken", text)
    return replicas_finding(name, state, f"up to message {state.last_sequence}")


def replicas_finding(subject: str, state: StreamState, text: str) -> Finding:
    """How many servers keep a stream, after ``text`` about it."""
    kept = f"{text}, {counted(state.replicas, 'replica')}"
    if state.lagging:
        away = f"{kept}; away or behind: {', '.join(state.lagging)}; does each server run?"
        return Finding(AREA, subject, "lesser", away)
    if state.wanted > state.replicas and state.cluster:
        few = (
            f"{kept}, {state.wanted} are wanted: the servers of {state.cluster} could not keep "
            "them when it was made; the claim-controller raises them once they can"
        )
        return Finding(AREA, subject, "lesser", few)
    if state.replicas == 1 and state.cluster:
        alone = (
            f"{kept} in the cluster {state.cluster}: one disk holds all of it; set "
            "DRAY_STREAMS__REPLICAS=3 for the claim-controllers"
        )
        return Finding(AREA, subject, "lesser", alone)
    return Finding(AREA, subject, "ok", kept)


def payload_finding(bus: Bus) -> Finding:
    """Whether the server accepts messages as long as Kubernetes objects can make them."""
    subject = "the longest message"
    if problem := payload_problem(bus.max_payload_bytes):
        return Finding(AREA, subject, "lesser", problem)
    return Finding(AREA, subject, "ok")


async def store_finding(bus: Bus, pools: tuple[Object, ...]) -> Finding:
    """The JetStream storage that the streams use, and its limit as the leader measured it."""
    subject = "the store"
    names = [spec.name for spec in STREAMS]
    names += [
        log_stream(pool["metadata"]["name"], epoch) for pool in pools if (epoch := _epoch(pool))
    ]
    states = [state for name in names if (state := await bus.state(name)) is not None]
    largest = max(states, key=lambda state: state.bytes, default=None)
    text = f"{_mib(sum(state.bytes for state in states))} in {counted(len(states), 'stream')}"
    if largest is not None:
        text += f"; the largest is {largest.name} with {_mib(largest.bytes)}"
    use = await _measured_store(bus)
    if use is None or not use.limit_bytes:
        return Finding(AREA, subject, "ok", f"{text}; its limit is not known (DRAY_STREAMS__STORE)")
    if problem := store_problem(use):
        return Finding(AREA, subject, "lesser", f"{text}. {problem}")
    share = f"{_mib(use.bytes)} of {_mib(use.limit_bytes)} are used"
    return Finding(AREA, subject, "ok", f"{text}; {share}")


async def _measured_store(bus: Bus) -> StoreUse | None:
    """The use of the store in the newest tick; None: unknown."""
    try:
        newest = await bus.last(FACTS_STREAM, subject_prefix(Tick))
    except (StreamMissingError, BusUnavailableError):
        return None
    if newest is None or not (tick := decode(newest, Tick)).store_bytes:
        return None
    return StoreUse(tick.store_bytes, tick.store_limit_bytes or None)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _epoch(pool: Object) -> int:
    """The epoch of the pool's decision log; 0: none."""
    return int(((pool.get("status") or {}).get("decisionLog") or {}).get("epoch") or 0)


async def log_finding(bus: Bus, pool: Object) -> Finding:
    """Whether the decision log that a pool's status names is there."""
    name = pool["metadata"]["name"]
    epoch = _epoch(pool)
    subject = f"decision log of {name}"
    if not epoch:
        text = "not opened yet: the claim-controller opens it; does one run?"
        return Finding(AREA, subject, "broken", text)
    state = await bus.state(log_stream(name, epoch))
    if state is None:
        text = f"{log_stream(name, epoch)} is lost: the claim-controller opens a new epoch"
        return Finding(AREA, subject, "broken", text)
    count = max(0, state.last_sequence - state.first_sequence + 1)
    text = f"epoch {epoch}, {counted(count, 'record')} up to {state.last_sequence}"
    return replicas_finding(subject, state, text)


async def _dead_letters(bus: Bus) -> list[Finding]:
    """The newest message that no service could process, and how many there were."""
    state = await bus.state(DEAD_STREAM)
    if state is None or state.first_sequence > state.last_sequence or not state.last_sequence:
        return []
    subject = "undeliverable messages"
    try:
        async with asyncio.timeout(_READ_S):
            newest = await anext(bus.read(DEAD_STREAM, start=state.last_sequence))
    except TimeoutError:
        why = bus.problem or f"{DEAD_STREAM} was not read within {_READ_S:g} s"
        return [Finding(AREA, subject, "unseen", why)]
    count = state.last_sequence - state.first_sequence + 1
    reason = newest.headers.get("dray-dead-reason", "no reason given")
    text = f"{count} in the last 7 days; the newest, {newest.subject}: {reason}"
    return [Finding(AREA, subject, "lesser", text)]


async def published_probe(bus: Bus) -> ClusterObserved | None:
    """What the claim-controller published about the cluster; None before that, and while no
    claim-controller answers read requests."""
    try:
        newest = await bus.last(FACTS_STREAM, subject_prefix(ClusterObserved))
    except (StreamMissingError, BusUnavailableError):
        return None
    return decode(newest.payload, ClusterObserved) if newest else None
