"""A service's journal: the events it consumed, and the inputs and answers of its pure rules.

The recorder of a service's rules passes inputs and answers to a ``Journal``, if there is one.
Services do not wait for the bus: lines are published in the background.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dray.bus.backlog import Backlog
from dray.bus.ports import Bus
from dray.messages.base import encode
from dray.messages.inputs import Noted
from dray.runtime.clock import Clock

LONGEST_TEXT = 150_000
"""Maximum characters of a line in one message. Each has up to six bytes, and nats-server accepts
1 MiB."""
_KNOWN_AFTER_LINES = 2000
_KNOWN_AFTER_S = 300.0
"""A complete state is written after this many lines or seconds. A recording that begins between two
complete states waits for the next one."""


class UnknownEventError(KeyError):
    """The event has a kind that this version does not know."""


class Notes(Protocol):
    """Receives events, inputs and answers to record. Kubernetes objects are redacted
    (``dray.recording.redaction``)."""

    def consumed(self, about: str, data: Any) -> None:
        """An event that the service folded into its state."""

    def decided(self, about: str, data: Any, answer: Any, *, polled: str = "") -> None:
        """An input and its answer. ``polled``: the name of a rule that runs continuously. It is
        recorded only when its answer changes."""


class Journal:
    """The lines of one process, queued for the bus. The oldest are dropped while it is
    unreachable."""

    def __init__(
        self,
        bus: Bus,
        kind: type[Noted],
        clock: Clock,
        *,
        instance: str,
        known: Callable[[], Any] | None = None,
        capacity_bytes: int = 64 * 2**20,
    ) -> None:
        self._backlog = Backlog(
            bus, capacity=capacity_bytes, what=f"the journal of {kind.NAME}", clock=clock
        )
        self._kind = kind
        self._clock = clock
        self._instance = instance
        self._life = f"{clock.now_unix_s():.6f}"
        self._known = known
        self._number = 0
        self._known_number = 0
        self._known_s = clock.monotonic_s()
        self._polled: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._backlog)

    @property
    def dropped(self) -> int:
        """Lines that were dropped before they were published."""
        return self._backlog.dropped

    def consumed(self, about: str, data: Any) -> None:
        """See ``Notes``. Call it before the event is folded."""
        if self._known is not None and self._is_known_due():
            self._known_number, self._known_s = self._number, self._clock.monotonic_s()
            self._write("known", "", self._known(), None)
        self._write("consumed", about, data, None)

    def decided(self, about: str, data: Any, answer: Any, *, polled: str = "") -> None:
        """See ``Notes``."""
        if polled:
            text = msgspec.json.encode(answer)
            if self._polled.get(polled) == text:
                return
            self._polled[polled] = text
        self._write("decided", about, data, answer)

    async def run(self) -> None:
        """Publish for ever, in order, with retries."""
        await self._backlog.run()

    async def flush(self) -> None:
        """Publish the queued lines. Raises BusUnavailableError, StreamMissingError."""
        await self._backlog.flush()

    def _is_known_due(self) -> bool:
        lines = self._number - self._known_number
        age_s = self._clock.monotonic_s() - self._known_s
        return lines >= _KNOWN_AFTER_LINES or (lines > 0 and age_s >= _KNOWN_AFTER_S)

    def _write(self, what: Any, about: str, data: Any, answer: Any) -> None:
        # Encode now, because the state changes later.
        encoded, answered = _encoded(data), _encoded(answer)
        if len(encoded or b"") + len(answered or b"") <= LONGEST_TEXT:
            self._offer(what, about, encoded, answered)
            return
        whole = msgspec.json.encode({"data": encoded, "answer": answered}).decode()
        for start in range(0, len(whole), LONGEST_TEXT):
            self._offer("part", "", data=whole[start : start + LONGEST_TEXT])
        self._offer(what, about)

    def _offer(self, what: Any, about: str, data: Any = None, answer: Any = None) -> None:
        self._number += 1
        line = self._kind(
            instance=self._instance,
            life=self._life,
            number=self._number,
            what=what,
            about=about,
            data=data,
            answer=answer,
            redacted=True,
        )
        message = encode(
            line,
            source=f"/{self._kind.NAME}/{self._instance}",
            now_unix_s=self._clock.now_unix_s(),
        )
        self._backlog.offer(message, size=len(data or b"") + len(answer or b""))


def _encoded(value: Any) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(msgspec.json.encode(value))
