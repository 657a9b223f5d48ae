"""Keyed work: nothing is lost, nothing runs twice at once, and no group holds up another."""

import asyncio
import itertools
from collections import Counter

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.virtual_time import LoopClock, run_virtually

from dray.api.errors import PermanentError
from dray.kube.ports import KubeError, KubeUnavailableError, NotFoundError, RefusedError
from dray_claim_controller.work_queue import FairSlots, FairWorkQueue

Key = tuple[str, int]


def group_of(key: Key) -> str:
    return key[0]


KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 2))
STEPS = st.lists(
    st.tuples(KEYS, st.floats(0, 3), st.sampled_from([0.0, 0.3, 2.5]), st.booleans()), max_size=25
)


@given(STEPS, st.integers(1, 3))
@settings(deadline=None)
def test_whatever_is_added_is_worked_on_afterwards_and_never_twice_at_once(
    steps: list[tuple[Key, float, float, bool]], workers: int
) -> None:
    async def main(clock: LoopClock) -> None:
        at_work: Counter[Key] = Counter()
        begun_s: dict[Key, float] = {}
        fate: dict[Key, tuple[float, bool]] = {}

        async def handle(key: Key) -> None:
            at_work[key] += 1
            begun_s[key] = clock.monotonic_s()
            assert at_work[key] == 1
            takes_s, fails = fate[key]
            await clock.sleep(takes_s)
            at_work[key] -= 1
            if fails:
                fate[key] = (takes_s, False)
                raise KubeUnavailableError("once")

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of, workers=workers)
        running = asyncio.create_task(queue.run())
        added_s: dict[Key, float] = {}
        for key, pause_s, takes_s, fails in steps:
            await clock.sleep(pause_s)
            fate[key] = (takes_s, fails)
            added_s[key] = clock.monotonic_s()
            queue.add(key)
        await clock.sleep(1000)
        assert not running.done()
        assert len(queue) == 0
        assert all(begun_s[key] >= added_s[key] for key in added_s)

    run_virtually(main)


@given(st.integers(1, 60), st.integers(1, 4), st.floats(0.01, 0.9))
@settings(deadline=None)
def test_a_group_waits_for_no_more_than_what_is_under_way(
    others: int, workers: int, takes_s: float
) -> None:
    async def main(clock: LoopClock) -> None:
        begun: list[tuple[float, Key]] = []

        async def handle(key: Key) -> None:
            begun.append((clock.monotonic_s(), key))
            await clock.sleep(takes_s)

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of, workers=workers)
        running = asyncio.create_task(queue.run())
        for number in range(others):
            queue.add(("crowd", number))
        await clock.sleep(takes_s / 2)
        queue.add(("one", 0))
        await clock.sleep(takes_s * (others + 2))
        at = [key for _, key in begun].index(("one", 0))
        # Those under way, and one of the crowd if it was its turn.
        assert at <= min(others, workers) + 1
        assert not running.done()

    run_virtually(main)


@given(st.integers(1, 40), st.integers(1, 4))
@settings(deadline=None)
def test_answers_that_never_come_delay_other_groups_by_the_patience_alone(
    hanging: int, workers: int
) -> None:
    async def main(clock: LoopClock) -> None:
        begun_s: dict[Key, float] = {}

        async def handle(key: Key) -> None:
            begun_s[key] = clock.monotonic_s()
            if group_of(key) == "hangs":
                await asyncio.Event().wait()

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of, workers=workers)
        running = asyncio.create_task(queue.run())
        for number in range(hanging):
            queue.add(("hangs", number))
        await clock.sleep(0.5)
        queue.add(("one", 0))
        await clock.sleep(10)
        assert begun_s["one", 0] <= 1.01
        assert not running.done()
        # The group itself has no more than its share, however long its answers take.
        assert len([key for key in begun_s if group_of(key) == "hangs"]) == min(hanging, workers)

    run_virtually(main)


def test_a_key_that_fails_rests_longer_each_time_up_to_five_minutes() -> None:
    async def main(clock: LoopClock) -> list[float]:
        tried_s: list[float] = []

        async def handle(key: Key) -> None:
            tried_s.append(clock.monotonic_s())
            raise RefusedError("quota", 403)

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of, workers=1)
        running = asyncio.create_task(queue.run())
        queue.add(("a", 1))
        for _ in range(400):
            await clock.sleep(5)
            queue.add(("a", 1))  # News of the same key do not shorten its rest.
        assert queue.resting == len(queue) == 1
        assert not running.done()
        return tried_s

    tried_s = run_virtually(main)
    rests = [after - before for before, after in itertools.pairwise(tried_s)]
    assert rests[0] < 0.21
    assert 140 < rests[-1] <= 301
    assert len(tried_s) < 25


@pytest.mark.parametrize("work_s", [0.0, 2.0], ids=["while it rests", "while it is worked on"])
def test_an_add_ends_the_rest_of_a_queue_made_so(work_s: float) -> None:
    async def main(clock: LoopClock) -> list[float]:
        tried_s: list[float] = []

        async def handle(key: Key) -> None:
            tried_s.append(clock.monotonic_s())
            await clock.sleep(work_s)
            raise KubeUnavailableError("too many requests", retry_after_s=50.0)

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of, add_ends_rest=True)
        running = asyncio.create_task(queue.run())
        queue.add(("a", 1))
        await clock.sleep(1)
        queue.add(("a", 1))
        await clock.sleep(49)
        assert queue.resting == len(queue) == 1
        assert not running.done()
        return tried_s

    assert [round(one) for one in run_virtually(main)] == [0, max(1, round(work_s))]


def test_a_rest_is_as_long_as_the_server_asks() -> None:
    async def main(clock: LoopClock) -> None:
        tried_s: list[float] = []

        async def handle(key: Key) -> None:
            tried_s.append(clock.monotonic_s())
            raise KubeUnavailableError("too many requests", retry_after_s=7.0)

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of)
        running = asyncio.create_task(queue.run())
        queue.add(("a", 1))
        await clock.sleep(7.5)
        assert [round(one) for one in tried_s] == [0, 7]
        assert not running.done()

    run_virtually(main)


def test_a_success_ends_the_growth_of_rests() -> None:
    async def main(clock: LoopClock) -> None:
        outcomes = iter([True] * 6 + [False, True, False])
        tried_s: list[float] = []

        async def handle(key: Key) -> None:
            tried_s.append(clock.monotonic_s())
            if next(outcomes):
                raise NotFoundError("not there yet")

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of)
        running = asyncio.create_task(queue.run())
        queue.add(("a", 1))
        await clock.sleep(100)
        assert len(tried_s) == 7
        queue.add(("a", 1))
        await clock.sleep(1)
        assert len(tried_s) == 9
        assert not running.done()

    run_virtually(main)


def test_what_nobody_foresaw_is_logged_and_delays_its_own_key_alone() -> None:
    async def main(clock: LoopClock) -> None:
        served: list[Key] = []

        async def handle(key: Key) -> None:
            if key == ("odd", 1):
                raise KeyError("spec")
            served.append(key)

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of, workers=1)
        running = asyncio.create_task(queue.run())
        queue.add(("odd", 1))
        queue.add(("a", 1))
        await clock.sleep(10)
        assert served == [("a", 1)]
        assert queue.resting == 1
        assert not running.done()

    with structlog.testing.capture_logs() as logs:
        run_virtually(main)
    assert any(line["event"] == "unforeseen" and line["key"] == ("odd", 1) for line in logs)


def test_an_error_that_concerns_all_ends_the_queue() -> None:
    class SupersededError(PermanentError):
        """Of all keys."""

    async def main(clock: LoopClock) -> None:
        async def handle(key: Key) -> None:
            raise SupersededError("another leads")

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of)
        queue.add(("a", 1))
        with pytest.raises(SupersededError):
            await queue.run()

    run_virtually(main)


@pytest.mark.parametrize("error", KubeError.__subclasses__(), ids=lambda one: one.__name__)
def test_no_answer_of_kubernetes_ends_the_queue(error: type[KubeError]) -> None:
    async def main(clock: LoopClock) -> None:
        answers = [error("no", 403) if error is RefusedError else error("no")]

        async def handle(key: Key) -> None:
            if answers:
                raise answers.pop()

        queue = FairWorkQueue(clock, handle, name="test", group_of=group_of)
        running = asyncio.create_task(queue.run())
        queue.add(("a", 1))
        await clock.sleep(1)
        assert not running.done()
        assert len(queue) == 0

    run_virtually(main)


def test_a_slot_is_given_back_by_who_is_cancelled_waiting_or_holding() -> None:
    async def main(clock: LoopClock) -> None:
        slots = FairSlots(clock, 1)

        async def hold() -> None:
            async with slots.held("a"):
                await clock.sleep(0.5)

        tasks = [asyncio.create_task(hold()) for _ in range(3)]
        await clock.sleep(0.1)
        tasks[1].cancel()  # It waits.
        tasks[0].cancel()  # It holds; in this moment the slot is the third's.
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait(tasks)
        async with asyncio.timeout(0.1):
            async with slots.held("b"):
                pass

    run_virtually(main)
