"""Reports of what went well let a crowd of pods pass, but not for ever."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.virtual_time import LoopClock, run_virtually

from dray.kube.ports import KubeUnavailableError, RefusedError
from dray_claim_controller.report.queue import CROWD, ReportQueue, Subject, Work

SUBJECT = ("pod", "bindrequest")
PATIENCE_S = 30.0


class Said:
    """What a queue has said, and a moment later."""

    def __init__(self, clock: LoopClock, hands: int = 1) -> None:
        self.words: list[str] = []
        self.clock = clock
        self.queue = ReportQueue(
            clock, group_of=lambda subject: subject[0], hands=hands, patience_s=PATIENCE_S
        )
        self.running = asyncio.create_task(self.queue.run())

    def word(self, word: str) -> Work:
        async def publish_fact() -> None:
            self.words.append(word)

        return publish_fact

    async def by_now(self, after_s: float = 0.001) -> list[str]:
        await self.clock.sleep(after_s)
        assert not self.running.done()
        return self.words


def scenario(of: Callable[[Said], Awaitable[None]]) -> None:
    run_virtually(lambda clock: of(Said(clock)))


def test_what_was_put_off_waits_while_a_crowd_is_on_its_way() -> None:
    async def of(stated: Said) -> None:
        stated.queue.scan(CROWD + 1)
        stated.queue.put_off(SUBJECT, stated.word("well"))
        stated.queue.scan(CROWD + 1)
        assert await stated.by_now() == []
        stated.queue.scan(CROWD)
        assert await stated.by_now() == ["well"]

    scenario(of)


def test_patience_ends_and_a_newer_word_inherits_the_age_of_the_one_it_replaces() -> None:
    async def of(stated: Said) -> None:
        stated.queue.scan(1000)
        stated.queue.put_off(SUBJECT, stated.word("well"))
        stated.queue.scan(1000)
        await stated.clock.sleep(PATIENCE_S - 1)
        stated.queue.put_off(SUBJECT, stated.word("better"))
        stated.queue.scan(1000)
        assert await stated.by_now() == []
        await stated.clock.sleep(1)
        stated.queue.scan(1000)
        assert await stated.by_now() == ["better"]
        assert not len(stated.queue)

    scenario(of)


def test_what_is_urgent_is_said_at_once_and_in_place_of_what_was_put_off() -> None:
    async def of(stated: Said) -> None:
        stated.queue.scan(1000)
        stated.queue.put_off(SUBJECT, stated.word("well"))
        stated.queue.scan(1000)
        stated.queue.put(SUBJECT, stated.word("ill"))
        assert await stated.by_now() == ["ill"]
        assert not len(stated.queue)

    scenario(of)


def test_what_is_urgent_comes_before_what_was_put_off() -> None:
    async def of(stated: Said) -> None:
        for number in range(3):
            stated.queue.put_off(("pod", str(number)), stated.word(f"well {number}"))
        stated.queue.put(("pod", "urgent"), stated.word("ill"))
        assert (await stated.by_now()).index("ill") <= 1
        assert len(stated.words) == 4

    scenario(of)


def test_what_could_not_be_said_gives_way_to_newer_words() -> None:
    async def of(stated: Said) -> None:
        async def fail() -> None:
            stated.queue.put(SUBJECT, stated.word("newer"))
            raise KubeUnavailableError("away")

        stated.queue.put(SUBJECT, fail)
        assert await stated.by_now(2) == ["newer"]
        assert not len(stated.queue)

    scenario(of)


def test_a_newer_word_waits_until_the_older_was_said() -> None:
    async def of(stated: Said) -> None:
        async def slow() -> None:
            await stated.clock.sleep(5)
            stated.words.append("older")

        stated.queue.put(SUBJECT, slow)
        await stated.clock.sleep(1)
        stated.queue.put(SUBJECT, stated.word("newer"))
        assert await stated.by_now() == []
        assert await stated.by_now(5) == ["older", "newer"]

    scenario(of)


def test_pods_whose_reports_are_refused_or_hang_delay_no_other() -> None:
    async def of(stated: Said) -> None:
        async def refuse() -> None:
            raise RefusedError("policy", 403)

        async def hang() -> None:
            await asyncio.Event().wait()

        subjects: list[Subject] = [(f"refused {number}", "") for number in range(50)]
        for subject in subjects:
            stated.queue.put(subject, refuse)
        stated.queue.put(("hangs", "1"), hang)
        await stated.clock.sleep(2)
        stated.queue.put(SUBJECT, stated.word("mine"))
        assert await stated.by_now(0.1) == ["mine"]
        assert len(stated.queue) == len(subjects)

    scenario(of)
