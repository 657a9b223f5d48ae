"""The order of reports, and which of them can be deferred. Independent of Kubernetes."""

from collections.abc import Awaitable, Callable
from typing import Final

from dray.runtime.clock import Clock
from dray.runtime.token_bucket import TokenBucket
from dray_claim_controller.work_queue import FairWorkQueue

Work = Callable[[], Awaitable[None]]
Subject = tuple[str, str]
"""UID of the object, and which report."""
REPEATS_PER_S: Final = 5.0
"""Repeated reports that are written each second, however many pods wait: 300 a minute."""
MOST_REPEATS: Final = 50.0
"""Repeated reports that are written at once, after a while without any."""
CROWD: Final = 32
"""Reports wait while more than this many pods are in execution: twice what is carried out at a
time."""
_FIRST_S: Final = 0.5


class ReportQueue:
    """Work by subject; newer work replaces older of the same subject.

    Work that was put off waits while a crowd of pods is on its way to its nodes, for at most
    ``patience_s`` seconds; then it is written after urgent reports. Work that raises a
    TemporaryError or KubeError is tried again, later each time; it delays no other subject.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        group_of: Callable[[Subject], str],
        hands: int = 4,
        patience_s: float = 30.0,
    ) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._work: dict[Subject, Work] = {}
        self._put_off: dict[Subject, float] = {}
        """Since when subjects were put off (monotonic)."""
        self._repeated: dict[Subject, Work] = {}
        """Reports that say again what was reported before, in other words."""
        self._repeats = TokenBucket(MOST_REPEATS, REPEATS_PER_S, now_s=clock.monotonic_s())
        self._held = False
        self._queue = FairWorkQueue(
            clock, self._publish, name="report", group_of=group_of, workers=hands, first_s=_FIRST_S
        )

    def __len__(self) -> int:
        return len(self._work) + len(self._repeated)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    def put(self, subject: Subject, work: Work) -> None:
        """Write a report as soon as possible."""
        self._put_off.pop(subject, None)
        self._repeated.pop(subject, None)
        self._work[subject] = work
        self._queue.add(subject)

    def repeat(self, subject: Subject, work: Work) -> None:
        """Write a report that replaces an earlier one. It waits if there are many such reports, and
        keeps its place among them."""
        if subject in self._work:
            self.put(subject, work)
        else:
            self._repeated[subject] = work
            self._release_repeated()

    def cancel_repeated(self, subject: Subject) -> None:
        """Cancel a repeated report, so that the others are sent."""
        self._repeated.pop(subject, None)

    def _release_repeated(self) -> None:
        while self._repeated and self._repeats.take(self._clock.monotonic_s()):
            subject = next(iter(self._repeated))
            self.put(subject, self._repeated[subject])

    def put_off(self, subject: Subject, work: Work) -> None:
        """Write a report when few pods are on their way."""
        self._repeated.pop(subject, None)
        self._put_off.setdefault(subject, self._clock.monotonic_s())
        self._work[subject] = work
        if not self._held:
            self._queue.add(subject, later=True)

    def scan(self, on_their_way: int) -> None:
        """Note how many pods are on their way now, and write the reports that are due."""
        self._release_repeated()
        now_s = self._clock.monotonic_s()
        oldest_s = next(iter(self._put_off.values()), now_s)
        self._held = on_their_way > CROWD and now_s - oldest_s < self._patience_s
        if not self._held:
            for subject in self._put_off:
                self._queue.add(subject, later=True)

    async def _publish(self, subject: Subject) -> None:
        if subject not in self._work or (self._held and subject in self._put_off):
            return
        since_s = self._put_off.pop(subject, None)
        work = self._work.pop(subject)
        is_written = False
        try:
            await work()
            is_written = True
        finally:
            # Newer work of the subject counts.
            if not is_written and subject not in self._work:
                self._work[subject] = work
                if since_s is not None:
                    self._put_off[subject] = since_s
