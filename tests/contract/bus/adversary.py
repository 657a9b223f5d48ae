"""Everything that somebody with a role's credentials can try on a real nats-server.

A trick is a message: what is published, with which reply subject and headers. Tricks do not depend
on what the server's configuration allows: a right that is added later is tried as well.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client

from dray.bus.topology import API_OF_OTHERS, API_OF_OWNER, LEASES_STREAM, STREAMS, log_spec
from dray.messages.decisions import log_subject

LOG = log_spec("p", 1)
LOG_SUBJECT = log_subject("p", 1)
COMMANDS_CONSUMER = "claim-controller"
ROLES = ("webhook", "allocator", "reader", "recorder", "n1")
"""Those who are not owners of the streams; ``n1`` is a node's agent."""
FORGED = b'{"type":"decided","forged":true}'
TARGETS: Mapping[str, tuple[str, ...]] = {
    # Every subject that is somebody's to publish, and whose it is.
    "dray.state.claim.v1.p.u": (),
    "dray.state.inventory.v1.n1": (),
    "dray.state.inventory.v1.n2": (),
    "dray.state.term.v1": (),
    "dray.state.tick.v1": (),
    LOG_SUBJECT: ("allocator",),
    "dray.decision.q.7": ("allocator",),
    "dray.cmd.claim.void.v1.p.u": ("allocator",),
    "dray.lease.domain.p": ("allocator",),
    "dray.evt.pod.requested.v1.p.r": ("webhook",),
    "dray.evt.claim.executed.v1.u.committed": (),
    "dray.evt.claim.prepared.v1.n1.u": ("n1",),
    "dray.evt.claim.prepared.v1.n2.u": (),
    "dray.input.webhook.v1.w": ("webhook",),
    "dray.input.claim-controller.v1.c": (),
    "dray.input.node-agent.v1.n1": ("n1",),
    "dray.input.node-agent.v1.n2": (),
    "dray.usage.gpus.v1.n1": ("n1",),
    "dray.usage.gpus.v1.n2": (),
    "dray.dead.x": (),
    "dray.rpc.lookup": ("webhook",),
    "dray.rpc.derive": ("webhook",),
    "dray.rpc.dump": ("reader",),
    "dray.rpc.scores": ("reader",),
    "dray.rpc.inventory.n1": ("n1",),
    "dray.rpc.inventory.n2": (),
    "dray.rpc.reading.webhook": ("webhook",),
    "dray.rpc.reading.allocator": ("allocator",),
    "dray.rpc.reading.reader": ("reader",),
    "dray.rpc.reading.recorder": ("recorder",),
    "dray.rpc.reading.node-agent.n1": ("n1",),
    "dray.rpc.reading.node-agent.n2": (),
    "$SYS.REQ.USER.AUTH": (),
    "$SYS.REQ.SERVER.PING": (),
}
STREAM_NAMES = (*(spec.name for spec in STREAMS), LOG.name)
_CONSUMER = {"ack_policy": "none", "deliver_policy": "all", "mem_storage": True}
READABLE: Mapping[str, tuple[str, ...]] = {
    "webhook": ("DRAY_FACTS",),
    "allocator": STREAM_NAMES,
    "reader": STREAM_NAMES,
    "recorder": STREAM_NAMES,
    "n1": ("DRAY_FACTS",),
}
"""Streams from whose consumers a role may pull, if it knows a consumer's name."""


@dataclass(frozen=True, slots=True)
class Trick:
    """One message."""

    subject: str
    payload: bytes = FORGED
    reply: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def api(verb: str) -> Iterator[str]:
    """A request to JetStream, under both prefixes."""
    yield API_OF_OWNER + verb
    yield API_OF_OTHERS + verb


def verbs(stream: str, deliver_to: str) -> Iterator[tuple[str, Any]]:
    """Every request that JetStream takes about a stream, made as harmful as it can be."""
    push = {**_CONSUMER, "deliver_subject": deliver_to}
    named = {**push, "name": "evil", "durable_name": "evil", "flow_control": True}
    named["idle_heartbeat"] = 100_000_000
    pull = {**_CONSUMER, "name": "evil", "durable_name": "evil"}
    evil = {"name": "EVIL", "subjects": ["evil.>"], "storage": "memory"}
    copied = {"name": stream}
    yield "INFO", {}
    yield "STREAM.NAMES", {}
    yield "STREAM.LIST", {}
    yield f"STREAM.INFO.{stream}", {"subjects_filter": ">"}
    yield "STREAM.CREATE.EVIL", {**evil, "republish": {"src": ">", "dest": deliver_to}}
    yield "STREAM.CREATE.EVIL", {**evil, "subjects": [], "mirror": copied}
    yield (
        "STREAM.CREATE.EVIL",
        {**evil, "sources": [{**copied, "external": {"deliver": deliver_to}}]},
    )
    yield f"STREAM.UPDATE.{stream}", {"name": stream, "republish": {"src": ">", "dest": deliver_to}}
    yield f"STREAM.PURGE.{stream}", {}
    yield f"STREAM.DELETE.{stream}", {}
    yield f"STREAM.MSG.GET.{stream}", {"seq": 1}
    yield f"STREAM.MSG.DELETE.{stream}", {"seq": 1}
    yield f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": deliver_to}
    yield f"STREAM.RESTORE.{stream}", {"config": evil, "state": {}}
    yield f"STREAM.PEER.REMOVE.{stream}", {"peer": "x"}
    yield f"STREAM.LEADER.STEPDOWN.{stream}", {}
    yield f"DIRECT.GET.{stream}", {"seq": 1}
    yield f"DIRECT.GET.{stream}.dray.state.tick.v1", {}
    yield f"DIRECT.GET.{stream}", {"seq": 1, "batch": 10, "multi_last": ["dray.>"]}
    yield f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": push}
    yield f"CONSUMER.CREATE.{stream}.evil", {"stream_name": stream, "config": named}
    yield f"CONSUMER.CREATE.{stream}.evil", {"stream_name": stream, "config": pull}
    yield f"CONSUMER.CREATE.{stream}.evil.dray.>", {"stream_name": stream, "config": named}
    yield f"CONSUMER.DURABLE.CREATE.{stream}.evil", {"stream_name": stream, "config": named}
    yield f"CONSUMER.NAMES.{stream}", {}
    yield f"CONSUMER.LIST.{stream}", {}
    yield f"CONSUMER.MSG.NEXT.{stream}.evil", {"batch": 10}
    for consumer in (COMMANDS_CONSUMER, "victim"):
        yield f"CONSUMER.INFO.{stream}.{consumer}", {}
        yield f"CONSUMER.DELETE.{stream}.{consumer}", {}
        yield f"CONSUMER.PAUSE.{stream}.{consumer}", {"pause_until": "2100-01-01T00:00:00Z"}
        yield f"CONSUMER.RESET.{stream}.{consumer}", {}
        yield f"CONSUMER.UNPIN.{stream}.{consumer}", {"group": "g"}
        yield f"CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}", {}
    yield f"CONSUMER.MSG.NEXT.DRAY_COMMANDS.{COMMANDS_CONSUMER}", {"batch": 10}
    yield "META.LEADER.STEPDOWN", {}
    yield "SERVER.REMOVE", {"peer": "x"}
    yield "ACCOUNT.PURGE.DRAY", {}


def all_verbs(deliver_to: str) -> Iterator[Trick]:
    """Every verb, for every stream, under every prefix, with ``deliver_to`` wherever a subject is
    named: as the reply and in the request."""
    for stream in STREAM_NAMES:
        for verb, body in verbs(stream, deliver_to):
            for subject in api(verb):
                yield Trick(subject, json.dumps(body).encode(), deliver_to)


def subjects_of_rights(own_consumers: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """What any role may send, with a payload that is answered.

    ``own_consumers``: by stream, of consumers that were made for the one who tries.
    """
    yield from ((subject, FORGED) for subject in TARGETS)
    for stream in STREAM_NAMES:
        yield f"{API_OF_OTHERS}STREAM.INFO.{stream}", b""
    yield f"{API_OF_OTHERS}STREAM.MSG.GET.{LEASES_STREAM}", b'{"seq":1}'
    for stream, consumer in own_consumers.items():
        next_one = f"{API_OF_OTHERS}CONSUMER.MSG.NEXT.{stream}.{consumer}"
        yield next_one, b'{"batch":5,"expires":200000000,"idle_heartbeat":50000000}'
        yield next_one, b'{"batch":5,"no_wait":true}'
        yield next_one, b"nonsense"


def headers(target: str) -> Iterator[dict[str, str]]:
    """Headers by which the server does more with a message than deliver it."""
    yield {"Nats-Trace-Dest": target}
    yield {"Nats-Trace-Dest": target, "Nats-Trace-Only": "true"}
    yield {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": target}
    yield {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": target}
    yield {"Nats-Rollup": "all"}
    yield {"Nats-Rollup": "sub"}
    yield {"Nats-Batch-Id": "evil", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
    yield {"Nats-Incr": "5"}
    yield {"Nats-Request-Info": '{"acc":"NODE_AGENT","user":"n2"}'}
    yield {"Nats-Msg-Id": "evil", "Nats-Expected-Stream": LOG.name}


def reserved(target: str) -> Iterator[str]:
    """Replies that mean something to the server."""
    yield "_R_.evil.1"
    yield "_GR_.evil.1.x"
    yield f"$JS.ACK.DRAY_COMMANDS.{COMMANDS_CONSUMER}.1.1.1.1.0"
    yield "$JS.FC.DRAY_FACTS.victim.x"
    yield f"{API_OF_OWNER}CONSUMER.MSG.NEXT.DRAY_COMMANDS.{COMMANDS_CONSUMER}"
    yield f"{API_OF_OTHERS}CONSUMER.MSG.NEXT.DRAY_COMMANDS.{COMMANDS_CONSUMER}"
    yield f"{API_OF_OTHERS}STREAM.PURGE.DRAY_FACTS"
    yield target


def tricks(target: str, own_consumers: Mapping[str, str]) -> Iterator[Trick]:
    """All that aims at one subject."""
    rights = tuple(subjects_of_rights(own_consumers))
    yield Trick(target)
    yield Trick(target, reply="_INBOX.x")
    for subject, payload in rights:
        yield Trick(subject, payload, target)
        for more in headers(target):
            yield Trick(subject, payload, target, more)
    yield from all_verbs(target)


def tricks_on_replies(own_consumers: Mapping[str, str]) -> Iterator[Trick]:
    """Replies that are not subjects of a message, for all that may be sent."""
    for reply in reserved(LOG_SUBJECT):
        for subject, payload in subjects_of_rights(own_consumers):
            yield Trick(subject, payload, reply)
    for subject in (
        f"$JS.ACK.DRAY_COMMANDS.{COMMANDS_CONSUMER}.1.1.1.1.0",
        "$JS.FC.DRAY_FACTS.victim.x",
        "$JS.SNAPSHOT.RESTORE.DRAY_FACTS.x",
        "_R_.x.y",
    ):
        yield Trick(subject, b"+ACK")


class Adversary:
    """A connection with a role's credentials that notes what the server refuses."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.client = Client()
        self.refused: list[str] = []
        self.inbox = ""

    async def connect(self, url: str, **credentials: Any) -> None:
        async def note(error: Exception) -> None:
            self.refused.append(str(error).lower())

        await self.client.connect(url, error_cb=note, allow_reconnect=False, **credentials)
        self.inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self.inbox}.>")

    async def play(self, each: Trick) -> None:
        """Send it."""
        await self.client.publish(
            each.subject, each.payload, reply=each.reply, headers=each.headers or None
        )

    async def settle(self) -> None:
        """Until the server has read all that was sent."""
        # nats-py writes the first PING ahead of what it has not written yet, the second after it.
        await self.client.flush(timeout=60)
        await self.client.flush(timeout=60)

    def was_refused(self, what: str, subject: str) -> bool:
        """Whether the server refused this user a publication or subscription."""
        return any(f'violation for {what} to "{subject.lower()}"' in one for one in self.refused)

    async def close(self) -> None:
        await self.client.close()
