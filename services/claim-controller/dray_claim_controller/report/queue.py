"""What is to be said, in which order, and what can be put off. Nothing here knows Kubernetes."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

Work = Callable[[], Awaitable[None]]
Subject = tuple[str, str]
"""Whom it is about, and what."""
CROWD: Final = 32
"""So many pods on their way are a crowd: twice what is carried out at a time."""


class ReportQueue:
    """Work by subject; newer work replaces older of the same subject.

    What was put off waits while a crowd of pods is on its way to its nodes, ``patience_s``
    seconds at most: then it is worked off beside them.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._urgent: OrderedDict[Subject, Work] = OrderedDict()
        self._put_off: OrderedDict[Subject, tuple[float, Work]] = OrderedDict()
        self._busy: dict[Subject, None] = {}
        """What is being said: newer work of a subject waits, or the older might have the last
        word."""
        self._held = False
        self._todo = asyncio.Event()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._put_off)

    def put(self, subject: Subject, work: Work) -> None:
        """To be said at once."""
        self._put_off.pop(subject, None)
        self._urgent[subject] = work
        self._todo.set()

    def put_off(self, subject: Subject, work: Work, now_s: float) -> None:
        """To be said when there is time. ``now_s`` is monotonic."""
        self._urgent.pop(subject, None)
        since_s, _ = self._put_off.get(subject, (now_s, work))
        self._put_off[subject] = (since_s, work)
        self._todo.set()

    def put_back(self, subject: Subject, work: Work) -> None:
        """It could not be said; newer work of the same subject counts."""
        if subject not in self._put_off:
            self._urgent.setdefault(subject, work)
            self._todo.set()

    def look(self, on_their_way: int, now_s: float) -> None:
        """How many pods are on their way now."""
        oldest_s = next((since_s for since_s, _ in self._put_off.values()), now_s)
        self._held = on_their_way > CROWD and now_s - oldest_s < self._patience_s
        if not self._held:
            self._todo.set()

    async def next(self) -> tuple[Subject, Work]:
        """The next thing to say, once there is one; ``done`` when it was said, or not."""
        while True:
            if (subject := self._free(self._urgent)) is not None:
                self._busy[subject] = None
                return subject, self._urgent.pop(subject)
            if not self._held and (subject := self._free(self._put_off)) is not None:
                self._busy[subject] = None
                return subject, self._put_off.pop(subject)[1]
            self._todo.clear()
            await self._todo.wait()

    def done(self, subject: Subject) -> None:
        """Nobody is at it any more."""
        self._busy.pop(subject, None)
        self._todo.set()

    def _free(self, subjects: Iterable[Subject]) -> Subject | None:
        return next((subject for subject in subjects if subject not in self._busy), None)
