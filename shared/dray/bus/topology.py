"""Which streams exist, and who may publish and subscribe to what. Data, no calls.

The same table makes nats-server's permissions in the local stack and in the chart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dray.bus.ports import StreamSpec
from dray.messages.base import Message, subject_prefix
from dray.messages.commands import VoidClaim
from dray.messages.decisions import log_stream, log_subject
from dray.messages.events import ClaimPrepared, ExecutionStep, PodRequested
from dray.messages.facts import FACTS, InventoryObserved
from dray.messages.inputs import AgentNoted, ControllerNoted, Reviewed
from dray.messages.rpc import DUMP_SUBJECT, LOOKUP_SUBJECT

FACTS_STREAM = "DRAY_FACTS"
EVENTS_STREAM = "DRAY_EVENTS"
COMMANDS_STREAM = "DRAY_COMMANDS"
INPUTS_STREAM = "DRAY_INPUTS"
DEAD_STREAM = "DRAY_DEAD"
LEASES_STREAM = "DRAY_LEASES"
LEASE_PREFIX = "dray.lease."
"""Subjects of leases: one per key, made and answered by the bus door alone."""
DAY_S = 86_400.0
HOUR_S = 3_600.0
MIB = 2**20

STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        FACTS_STREAM,
        ("dray.state.>",),
        last_per_subject=True,
        message_ttl=True,
        purpose="the cluster as observed: last value of every object, folded in order",
    ),
    StreamSpec(
        EVENTS_STREAM,
        ("dray.evt.>",),
        max_age_s=DAY_S,
        max_bytes=256 * MIB,
        purpose="what happened to pods, for timelines; no state depends on it",
    ),
    StreamSpec(
        COMMANDS_STREAM,
        ("dray.cmd.>",),
        max_age_s=DAY_S,
        max_bytes=64 * MIB,
        purpose="wishes with one addressee",
    ),
    StreamSpec(
        INPUTS_STREAM,
        ("dray.input.>",),
        max_age_s=HOUR_S,
        max_bytes=256 * MIB,
        purpose="what services consumed while their recording is on, for `dray record`",
    ),
    StreamSpec(
        DEAD_STREAM,
        ("dray.dead.>",),
        max_age_s=7 * DAY_S,
        max_bytes=64 * MIB,
        purpose="messages nobody could handle",
    ),
    StreamSpec(
        LEASES_STREAM,
        (f"{LEASE_PREFIX}>",),
        last_per_subject=True,
        message_ttl=True,
        purpose="who serves which domain; a courtesy, lapses by message time-to-live",
    ),
)


def limited(limits: Mapping[str, int]) -> tuple[StreamSpec, ...]:
    """The streams, with other limits in bytes for some, by name. Facts, leases and decision logs
    have none: nothing of theirs may be dropped."""
    return tuple(replace(spec, max_bytes=limits.get(spec.name, spec.max_bytes)) for spec in STREAMS)


def log_spec(domain: str, epoch: int) -> StreamSpec:
    """The stream of a domain's decision log. Only the claim-controller's leader makes it."""
    return StreamSpec(
        log_stream(domain, epoch),
        (log_subject(domain, epoch),),
        duplicate_window_s=1.0,
        purpose=f"decisions of {domain}, epoch {epoch}",
    )


@dataclass(frozen=True, slots=True)
class Access:
    """What one role may publish and subscribe to (beside its inbox and JetStream's API)."""

    role: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    """Plain subscriptions; streams are read through JetStream's API."""
    makes_streams: bool = False


def _subjects(*messages: type[Message]) -> tuple[str, ...]:
    return tuple(f"{subject_prefix(message)}.>" for message in messages)


_FACTS = tuple(
    subject for fact in FACTS for subject in (subject_prefix(fact), f"{subject_prefix(fact)}.>")
)

ACCESS: tuple[Access, ...] = (
    Access("webhook", (*_subjects(PodRequested, Reviewed), LOOKUP_SUBJECT, "dray.dead.>")),
    Access(
        "claim-controller",
        (
            *_FACTS,
            *_subjects(ExecutionStep, ControllerNoted),
            "dray.decision.>",
            "dray.dead.>",
            f"{LEASE_PREFIX}>",
        ),
        (LOOKUP_SUBJECT,),
        makes_streams=True,
    ),
    Access(
        "allocator",
        ("dray.decision.>", *_subjects(VoidClaim), "dray.dead.>", f"{LEASE_PREFIX}>"),
        (DUMP_SUBJECT,),
    ),
    Access("node-agent", (*_subjects(InventoryObserved, ClaimPrepared, AgentNoted), "dray.dead.>")),
    Access("reader", (DUMP_SUBJECT,)),
)
