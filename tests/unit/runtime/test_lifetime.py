"""The life of a process: an orderly end on a signal, faults of loops."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dray.api.errors import TemporaryError
from dray.runtime.health import HealthPages
from dray.runtime.lifetime import LoopEndedError, serve


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_signal_ends_the_loops_and_then_closes_in_order() -> None:
    steps: list[str] = []
    started = asyncio.Event()
    health = HealthPages()

    async def work() -> None:
        started.set()
        try:
            await for_ever()
        finally:
            steps.append(f"loop ended, ready={health.ready}")

    async def close_bus() -> None:
        steps.append("bus closed")

    async def signal_once_started() -> None:
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await for_ever()

    async with asyncio.timeout(20):
        await serve(health=health, close=[close_bus], work=work, trigger=signal_once_started)
    assert steps == ["loop ended, ready=False", "bus closed"]


async def test_a_loop_that_returns_is_a_fault_that_ends_the_others() -> None:
    ended = []

    async def returns() -> None:
        return

    async def other() -> None:
        try:
            await for_ever()
        finally:
            ended.append("other")

    with pytest.raises(ExceptionGroup) as caught:
        await serve(returns=returns, other=other)
    assert ended == ["other"]
    (fault,) = caught.value.exceptions
    assert isinstance(fault, LoopEndedError)
    assert "'returns'" in str(fault)


async def test_a_loop_that_fails_ends_the_process_with_its_error() -> None:
    async def fails() -> None:
        raise TemporaryError("the pools can't be read")

    closed = []

    async def close() -> None:
        closed.append(True)

    with pytest.raises(ExceptionGroup) as caught:
        await serve(close=[close], fails=fails, other=for_ever)
    assert str(caught.value.exceptions[0]) == "the pools can't be read"
    assert closed == [True]


async def test_what_can_not_be_closed_in_time_does_not_hold_the_rest_up() -> None:
    closed = []

    async def hangs() -> None:
        await for_ever()

    async def fails() -> None:
        raise TemporaryError("away")

    async def closes() -> None:
        closed.append(True)

    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await for_ever()

    async with asyncio.timeout(20):
        await serve(close=[hangs, fails, closes], grace_s=0.05, stop=stop)
    assert closed == [True]


async def test_all_that_is_to_be_closed_shares_the_time(monkeypatch) -> None:
    """Each for all of it: four that wait for a bus that is away would outlast the kubelet."""
    granted = []

    def timeout(delay_s: float) -> asyncio.Timeout:
        granted.append(delay_s)
        return grant(delay_s)

    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await for_ever()

    grant = asyncio.timeout
    async with asyncio.timeout(60):
        monkeypatch.setattr(asyncio, "timeout", timeout)
        await serve(close=[for_ever, for_ever, for_ever], grace_s=0.2, stop=stop)
    first, *others = granted
    assert first <= 0.2
    assert others == pytest.approx([0.02, 0.02])


PROGRAM = """
import asyncio
from dray.runtime.lifetime import serve

async def work():
    print("started", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("ending", flush=True)
        {ending}

async def other():
    {other}

asyncio.run(serve(work=work, other=other, grace_s={grace_s}))
"""


@contextlib.contextmanager
def running(
    ending: str, grace_s: float, other: str = "await asyncio.Event().wait()"
) -> Iterator["subprocess.Popen[str]"]:
    """A process with one loop that has started; it is killed if the test leaves it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(ending=ending, grace_s=grace_s, other=other)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            wait_for(process, "started")
            yield process
        finally:
            process.kill()


def wait_for(process: "subprocess.Popen[str]", expected: str) -> None:
    assert process.stdout is not None
    assert any(line == f"{expected}\n" for line in process.stdout)


def test_a_second_signal_ends_the_process_at_once() -> None:
    with running("await asyncio.sleep(60)", 60) as process:
        process.send_signal(signal.SIGTERM)
        wait_for(process, "ending")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 130


def test_a_loop_that_does_not_end_in_time_is_cut_off() -> None:
    with running("await asyncio.sleep(60)", 0.05) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 1


def test_an_orderly_end_is_a_success() -> None:
    with running("pass", 5) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def test_a_loop_that_does_not_end_after_the_fault_of_another_is_cut_off() -> None:
    with running("await asyncio.sleep(60)", 0.05, other="await asyncio.sleep(0.01)") as process:
        assert process.wait(timeout=20) == 1
