"""Reports of success wait while many pods are on their way, for a limited time."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.virtual_time import LoopClock, run_virtually

from dray.kube.ports import KubeUnavailableError, RefusedError
from dray_claim_controller.report.queue import (
    CROWD,
    REPEATS_PER_S,
    ReportQueue,
    Subject,
    Work,
)

SUBJECT = ("pod", "bindrequest")
PATIENCE_S = 30.0


class QueueRun:
    """A running queue and the reports that it has written."""

    def __init__(self, clock: LoopClock, hands: int = 1) -> None:
        self.written: list[str] = []
        self.clock = clock
        self.queue = ReportQueue(
            clock, group_of=lambda subject: subject[0], hands=hands, patience_s=PATIENCE_S
        )
        self.running = asyncio.create_task(self.queue.run())

    def report(self, text: str) -> Work:
        async def write() -> None:
            self.written.append(text)

        return write

    async def by_now(self, after_s: float = 0.001) -> list[str]:
        await self.clock.sleep(after_s)
        assert not self.running.done()
        return self.written


def scenario(of: Callable[[QueueRun], Awaitable[None]]) -> None:
    run_virtually(lambda clock: of(QueueRun(clock)))


def test_a_deferred_report_waits_while_many_pods_are_on_their_way() -> None:
    async def of(run: QueueRun) -> None:
        run.queue.scan(CROWD + 1)
        run.queue.put_off(SUBJECT, run.report("well"))
        run.queue.scan(CROWD + 1)
        assert await run.by_now() == []
        run.queue.scan(CROWD)
        assert await run.by_now() == ["well"]

    scenario(of)


def test_patience_ends_and_a_newer_report_inherits_the_age_of_the_one_it_replaces() -> None:
    async def of(run: QueueRun) -> None:
        run.queue.scan(1000)
        run.queue.put_off(SUBJECT, run.report("well"))
        run.queue.scan(1000)
        await run.clock.sleep(PATIENCE_S - 1)
        run.queue.put_off(SUBJECT, run.report("better"))
        run.queue.scan(1000)
        assert await run.by_now() == []
        await run.clock.sleep(1)
        run.queue.scan(1000)
        assert await run.by_now() == ["better"]
        assert not len(run.queue)

    scenario(of)


def test_an_urgent_report_is_written_at_once_and_replaces_a_deferred_one() -> None:
    async def of(run: QueueRun) -> None:
        run.queue.scan(1000)
        run.queue.put_off(SUBJECT, run.report("well"))
        run.queue.scan(1000)
        run.queue.put(SUBJECT, run.report("failed"))
        assert await run.by_now() == ["failed"]
        assert not len(run.queue)

    scenario(of)


def test_an_urgent_report_precedes_deferred_ones() -> None:
    async def of(run: QueueRun) -> None:
        for number in range(3):
            run.queue.put_off(("pod", str(number)), run.report(f"well {number}"))
        run.queue.put(("pod", "urgent"), run.report("failed"))
        assert (await run.by_now()).index("failed") <= 1
        assert len(run.written) == 4

    scenario(of)


def test_a_newer_report_replaces_one_that_failed() -> None:
    async def of(run: QueueRun) -> None:
        async def fail() -> None:
            run.queue.put(SUBJECT, run.report("newer"))
            raise KubeUnavailableError("away")

        run.queue.put(SUBJECT, fail)
        assert await run.by_now(2) == ["newer"]
        assert not len(run.queue)

    scenario(of)


def test_a_newer_report_waits_until_the_older_is_written() -> None:
    async def of(run: QueueRun) -> None:
        async def slow() -> None:
            await run.clock.sleep(5)
            run.written.append("older")

        run.queue.put(SUBJECT, slow)
        await run.clock.sleep(1)
        run.queue.put(SUBJECT, run.report("newer"))
        assert await run.by_now() == []
        assert await run.by_now(5) == ["older", "newer"]

    scenario(of)


def test_pods_whose_reports_are_refused_or_hang_delay_no_other() -> None:
    async def of(run: QueueRun) -> None:
        async def refuse() -> None:
            raise RefusedError("policy", 403)

        async def hang() -> None:
            await asyncio.Event().wait()

        subjects: list[Subject] = [(f"refused {number}", "") for number in range(50)]
        for subject in subjects:
            run.queue.put(subject, refuse)
        run.queue.put(("hangs", "1"), hang)
        await run.clock.sleep(2)
        run.queue.put(SUBJECT, run.report("mine"))
        assert await run.by_now(0.1) == ["mine"]
        assert len(run.queue) == len(subjects)

    scenario(of)


def test_repeated_reports_are_written_slowly_however_many_there_are() -> None:
    async def of(run: QueueRun) -> None:
        for number in range(2000):
            run.queue.repeat((f"pod-{number}", "bindrequest"), run.report(f"{number}"))
        assert len(run.queue) == 2000
        for _ in range(600):
            run.queue.scan(0)
            await run.by_now(0.1)
        assert 50 + 59 * REPEATS_PER_S <= len(run.written) <= 50 + 61 * REPEATS_PER_S
        assert run.written == [f"{number}" for number in range(len(run.written))]

    scenario(of)


def test_the_first_report_of_a_pod_does_not_wait_for_repeated_ones() -> None:
    async def of(run: QueueRun) -> None:
        for number in range(2000):
            run.queue.repeat((f"pod-{number}", "bindrequest"), run.report("again"))
        run.queue.put(("new", "bindrequest"), run.report("new"))
        assert "new" in await run.by_now(0.1)

    scenario(of)


def test_a_repeated_report_replaces_one_that_is_not_written_yet() -> None:
    async def of(run: QueueRun) -> None:
        for number in range(60):
            run.queue.repeat((f"pod-{number}", "bindrequest"), run.report("old"))
        run.queue.repeat(("pod-59", "bindrequest"), run.report("new"))
        run.queue.repeat(("pod-0", "bindrequest"), run.report("newest"))
        for _ in range(100):
            run.queue.scan(0)
            await run.by_now(0.1)
        assert len(run.written) in (60, 61)
        assert run.written.count("new") == 1
        assert run.written.count("newest") == 1

    scenario(of)
