"""Reports of what went well let a crowd of pods pass, but not for ever."""

import asyncio

from dray_claim_controller.report.queue import CROWD, ReportQueue

SUBJECT = ("pod", "bindrequest")


async def work() -> None:
    """Nothing."""


async def other() -> None:
    """Nothing either."""


async def is_held(queue: ReportQueue) -> bool:
    taking = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    return taking.cancelled()


async def test_what_was_put_off_waits_while_a_crowd_is_on_its_way() -> None:
    queue = ReportQueue(patience_s=30.0)
    queue.look(CROWD + 1, 0.0)
    queue.put_off(SUBJECT, work, 0.0)
    assert await is_held(queue)
    queue.look(CROWD, 1.0)
    assert await queue.next() == (SUBJECT, work)


async def test_patience_ends() -> None:
    queue = ReportQueue(patience_s=30.0)
    queue.put_off(SUBJECT, work, 0.0)
    queue.look(1000, 29.0)
    assert await is_held(queue)
    queue.look(1000, 30.0)
    assert await queue.next() == (SUBJECT, work)


async def test_a_newer_word_inherits_the_age_of_the_one_it_replaces() -> None:
    queue = ReportQueue(patience_s=30.0)
    queue.put_off(SUBJECT, work, 0.0)
    queue.put_off(SUBJECT, other, 29.0)
    queue.look(1000, 30.0)
    assert await queue.next() == (SUBJECT, other)
    assert not len(queue)


async def test_what_is_urgent_is_said_at_once_and_in_place_of_what_was_put_off() -> None:
    queue = ReportQueue(patience_s=30.0)
    queue.look(1000, 0.0)
    queue.put_off(SUBJECT, work, 0.0)
    queue.put(SUBJECT, other)
    assert await queue.next() == (SUBJECT, other)
    assert not len(queue)


async def test_what_could_not_be_said_gives_way_to_newer_words() -> None:
    queue = ReportQueue(patience_s=30.0)
    queue.put_off(SUBJECT, other, 0.0)
    queue.put_back(SUBJECT, work)
    assert await queue.next() == (SUBJECT, other)
    assert not len(queue)


async def test_a_newer_word_waits_until_the_older_was_said() -> None:
    queue = ReportQueue(patience_s=30.0)
    queue.put(SUBJECT, work)
    older = await queue.next()
    queue.put(SUBJECT, other)
    assert await is_held(queue)
    queue.put_back(*older)
    queue.done(SUBJECT)
    assert await queue.next() == (SUBJECT, other)
