"""Backoff, the clock, redaction and logs."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from dray.runtime import logs
from dray.runtime.backoff import Backoff
from dray.runtime.clock import ManualClock, SystemClock
from dray.runtime.redaction import is_secret, redacted
from dray.telemetry import new_traceparent, parse, start


def test_backoff_grows_to_its_most_and_starts_again() -> None:
    backoff = Backoff(1.0, 5.0, draw=lambda: 1.0)
    assert [backoff.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next_s() == 1


def test_backoff_is_drawn_from_the_upper_half() -> None:
    assert Backoff(4.0, 8.0, draw=lambda: 0.0).next_s() == 2.0
    waits = [Backoff(4.0, 8.0).next_s() for _ in range(50)]
    assert all(2.0 <= wait <= 4.0 for wait in waits)
    assert len(set(waits)) > 1


def test_backoff_waits_as_long_as_the_server_asks() -> None:
    assert Backoff(0.1, 1.0).next_s(at_least_s=7.0) == 7.0


async def test_a_manual_clock_wakes_sleepers_in_the_order_of_their_times() -> None:
    clock = ManualClock(100.0)
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, delay_s: float) -> None:
        await clock.sleep(delay_s)
        woken.append((name, clock.now_unix_s()))

    tasks = [asyncio.create_task(sleep(*args)) for args in (("late", 5), ("soon", 1))]
    await asyncio.sleep(0)
    await clock.advance(0.5)
    assert woken == []
    await clock.advance(10)
    assert woken == [("soon", 101.0), ("late", 105.0)]
    assert clock.monotonic_s() == 110.5
    await asyncio.gather(*tasks)


async def test_the_system_clock_moves() -> None:
    clock = SystemClock()
    before = clock.monotonic_s()
    await clock.sleep(0.001)
    assert clock.monotonic_s() > before
    assert clock.now_unix_s() > 1.7e9


def test_secrets_are_known_by_their_names() -> None:
    assert all(map(is_secret, ("password", "NATS_PASSWORD", "api-token", "Authorization")))
    assert not any(map(is_secret, ("pass_count", "url", "key", "claim")))
    assert redacted({"a": [{"token": "x", "b": 1}]}) == {"a": [{"token": "(hidden)", "b": 1}]}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("webhook", "w-0", stream=stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_is_one_json_line_with_its_process(stream: io.StringIO) -> None:
    structlog.get_logger().warning("message", count=3, password="x", error=ValueError("y"))
    (line,) = lines(stream)
    assert line["event"] == "message"
    assert (line["service"], line["instance"], line["level"]) == ("webhook", "w-0", "warning")
    assert line["count"] == 3
    assert line["password"] == "(hidden)"
    assert line["timestamp"].endswith("Z")


def test_what_libraries_log_is_formatted_alike(stream: io.StringIO) -> None:
    logging.getLogger("library").error("broken %s", "pipe")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["service"]) == ("broken pipe", "error", "webhook")


def test_below_the_level_nothing_is_logged(stream: io.StringIO) -> None:
    structlog.get_logger().debug("quiet")
    logging.getLogger("library").debug("quiet")
    assert lines(stream) == []


def test_a_log_carries_the_trace_it_belongs_to(stream: io.StringIO) -> None:
    traceparent = new_traceparent(sampled=False)
    with start("work", traceparent):
        structlog.get_logger().info("inside")
    structlog.get_logger().info("outside")
    inside, outside = lines(stream)
    position = parse(traceparent)
    assert position is not None
    assert (inside["trace_id"], inside["span_id"]) == (position.trace_id, position.span_id)
    assert "trace_id" not in outside


def test_an_error_is_logged_with_its_traceback(stream: io.StringIO) -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = lines(stream)
    assert "ValueError: wrong" in line["exception"]
