"""What the doctor reads of the bus."""

from dray.bus.ports import Bus, StreamMissingError
from dray.bus.topology import DEAD_STREAM, FACTS_STREAM, STREAMS
from dray.kube.ports import Object
from dray.messages.base import decode, subject_prefix
from dray.messages.decisions import log_stream
from dray.messages.facts import ClusterObserved, Tick
from dray_cli.doctor.findings import Finding
from dray_cli.wording import counted

AREA = "The bus"
_SILENT_S = 20.0
"""Longer than a change of leaders takes, and than clocks of two machines should differ."""


async def look_at_bus(bus: Bus, pools: tuple[Object, ...]) -> list[Finding]:
    """The streams of the topology, the decision log of each pool, and letters nobody could read."""
    return [
        *[await stream_finding(bus, spec.name, spec.purpose) for spec in STREAMS],
        *[await log_finding(bus, pool) for pool in pools],
        *await dead_letters(bus),
    ]


def not_reached(url: str, why: str = "") -> Finding:
    """A bus that does not answer is broken; one that nobody named was not looked at."""
    if not url:
        text = "which NATS to look at was not said; name it with --nats or DRAY_NATS__URL"
        return Finding(AREA, "connection", "unseen", text)
    seen = why or f"NATS at {url} can't be reached, or refuses this user"
    text = (
        f"{seen}: nothing new is decided while it is away; does it run, and are address, "
        "$DRAY_NATS__USER and $DRAY_NATS__PASSWORD right?"
    )
    return Finding(AREA, "connection", "broken", text)


async def leader_finding(bus: Bus, now_unix_s: float) -> Finding:
    """Whether a claim-controller leads, by the age of its newest tick: it sends one a second."""
    subject = "a claim-controller leads"
    try:
        newest = await bus.last(FACTS_STREAM, subject_prefix(Tick))
    except StreamMissingError:
        newest = None
    if newest is None:
        text = "none has yet: nothing is observed or carried out; does one run?"
        return Finding(AREA, subject, "broken", text)
    age_s = now_unix_s - newest.time_unix_s
    if age_s > _SILENT_S:
        text = (
            f"the last sign of it is {age_s:.0f} s old: nothing is observed or carried out; "
            "does one run, and what does its log say?"
        )
        return Finding(AREA, subject, "broken", text)
    return Finding(AREA, subject, "ok")


async def stream_finding(bus: Bus, name: str, purpose: str) -> Finding:
    """Whether a stream is there, and how far it has come."""
    state = await bus.state(name)
    if state is None:
        text = f"missing ({purpose}): the claim-controller makes it when it starts; does one run?"
        return Finding(AREA, name, "broken", text)
    return Finding(AREA, name, "ok", f"up to message {state.last_sequence}")


async def log_finding(bus: Bus, pool: Object) -> Finding:
    """Whether the decision log that a pool's status names is there."""
    name = pool["metadata"]["name"]
    epoch = ((pool.get("status") or {}).get("decisionLog") or {}).get("epoch", 0)
    subject = f"decision log of {name}"
    if not epoch:
        text = "not opened yet: the claim-controller opens it; does one run?"
        return Finding(AREA, subject, "broken", text)
    state = await bus.state(log_stream(name, epoch))
    if state is None:
        text = f"{log_stream(name, epoch)} is lost: the claim-controller opens a new epoch"
        return Finding(AREA, subject, "broken", text)
    return Finding(AREA, subject, "ok", f"epoch {epoch}, {counted(state.last_sequence, 'record')}")


async def dead_letters(bus: Bus) -> list[Finding]:
    """The newest message that nobody could handle, and how many there were."""
    state = await bus.state(DEAD_STREAM)
    if state is None or state.first_sequence > state.last_sequence or not state.last_sequence:
        return []
    newest = await anext(bus.read(DEAD_STREAM, start=state.last_sequence))
    count = state.last_sequence - state.first_sequence + 1
    reason = newest.headers.get("dray-dead-reason", "no reason given")
    text = f"{count} in the last 7 days; the newest, {newest.subject}: {reason}"
    return [Finding(AREA, "messages nobody could handle", "lesser", text)]


async def published_probe(bus: Bus) -> ClusterObserved | None:
    """What the claim-controller says the cluster keeps, or None before it has said so."""
    try:
        newest = await bus.last(FACTS_STREAM, subject_prefix(ClusterObserved))
    except StreamMissingError:
        return None
    return decode(newest.payload, ClusterObserved) if newest else None
