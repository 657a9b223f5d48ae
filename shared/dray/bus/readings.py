"""Requests for consumers: the rights of each role, and the answer of the streams' owner.

A client that may create a consumer can make JetStream deliver to any subject of the owner's
account, even to a decision log. So only the owner creates consumers, and replies with their random
names.
"""

import re
from typing import Final

import msgspec
import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Bus, Request
from dray.bus.topology import DECISION_LOGS, WHOLE, Access, access_of
from dray.messages.base import token
from dray.messages.rpc import READING_SUBJECT, Reading, ReadingReply
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock, SystemClock

_QUEUE: Final = "readings"
PER_NODE: Final = 64
"""Consumers that one node may ask for within ``PERIOD_S``; a node-agent needs one."""
PER_ROLE: Final = 4096
"""The same limit for all users of another role together. An allocator needs one consumer for each
of its pools, and all allocators request theirs when NATS is back. nats-server needs 20 kB for each
consumer."""
PERIOD_S: Final = 60.0
_SHOWN: Final = 300
"""Number of characters shown of a refused name."""
_LOG: Final = re.compile(re.escape(DECISION_LOGS.removesuffix("*")) + "[-_0-9A-Za-z]{1,300}")
"""Names that decision logs can have. The name becomes part of a subject, and the server ends the
connection of a client that sends a subject longer than a line."""


def is_within(subject: str, pattern: str) -> bool:
    """Whether ``pattern`` covers all of the filter ``subject``; both may have wildcards."""
    parts, allowed = subject.split("."), pattern.split(".")
    for index, want in enumerate(allowed):
        if want == ">":
            return len(parts) > index
        if index >= len(parts) or parts[index] == ">":
            return False
        if want not in ("*", parts[index]):
            return False
    return len(parts) == len(allowed)


def refusal(access: Access, reading: Reading) -> str | None:
    """Why the role may not have this reading, or None."""
    for subject in reading.subjects or WHOLE:
        if not any(
            _is_stream(reading.stream, one.stream)
            and any(is_within(subject, pattern) for pattern in one.subjects)
            for one in access.reads
        ):
            what = f"{subject[:_SHOWN]} of {reading.stream[:_SHOWN]}"
            return f"the role {access.role} may not read {what}"
    return None


class ReadingServer:
    """Answers requests for consumers on the owner's connection. Any instance may do so."""

    def __init__(self, bus: Bus, clock: Clock | None = None) -> None:
        self._bus = bus
        self._clock = clock or SystemClock()
        self._period_s = 0.0
        """Start of the period in which requests are counted."""
        self._asked: dict[str, int] = {}
        """Number of requests of each node, and of each other role, in this period."""

    async def run(self) -> None:
        """Answer for ever."""
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await self._bus.serve(f"{READING_SUBJECT}.>", self.answer, queue=_QUEUE)
            except DrayError as error:
                structlog.get_logger().warning("requests for readings unanswered", why=str(error))
            await self._clock.sleep(backoff.next_s())

    async def answer(self, request: Request) -> bytes:
        """The encoded ReadingReply to an encoded Reading."""
        try:
            reading = msgspec.json.decode(request.payload, type=Reading)
        except msgspec.MsgspecError as error:
            return _encoded(ReadingReply(error=f"the request can't be read: {error}"))
        problem = self._problem(request, reading)
        if problem is not None:
            structlog.get_logger().warning(
                "a reading was refused", subject=request.subject, user=request.user, why=problem
            )
            return _encoded(ReadingReply(error=problem))
        try:
            return _encoded(await self._bus.open_reading(reading))
        except DrayError as error:
            return _encoded(ReadingReply(error=str(error)))

    def _problem(self, request: Request, reading: Reading) -> str | None:
        role, _, node = request.subject.removeprefix(f"{READING_SUBJECT}.").partition(".")
        try:
            access = access_of(role)
        except KeyError:
            return f"there is no role {role!r}"
        if not access.has_user_per_node:
            return self._flood(f"role {role}", PER_ROLE) or refusal(access, reading)
        if not request.user or token(request.user) != node:
            return (
                f"the request came as node {node!r} from the user {request.user or 'unknown'!r}; "
                "a node-agent asks under its own node's name"
            )
        too_many = self._flood(f"node {request.user}", PER_NODE)
        return too_many or refusal(access.for_node(request.user), reading)

    def _flood(self, who: str, most: int) -> str | None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._period_s + PERIOD_S:
            self._period_s = now_s
            self._asked.clear()
        asked = self._asked[who] = self._asked.get(who, 0) + 1
        if asked <= most:
            return None
        return f"{who} asked for more than {most} readings within {PERIOD_S:.0f} s: try again later"


def _is_stream(name: str, pattern: str) -> bool:
    if pattern == DECISION_LOGS:
        return _LOG.fullmatch(name) is not None
    return name == pattern


def _encoded(reply: ReadingReply) -> bytes:
    return msgspec.json.encode(reply)
