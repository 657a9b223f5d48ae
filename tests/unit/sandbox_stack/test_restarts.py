"""Programs that end by themselves are started again."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.sandbox_stack.test_processes import SLEEPS, python

from dray_sandbox import restarts
from dray_sandbox.processes import Runner
from dray_sandbox.restarts import RestartLoop


class Watched:
    """A runner whose programs are restarted, and its progress."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.lines: list[str] = []
        self.restarted: list[str] = []
        self.loop = RestartLoop(runner, self.lines.append, self.restarted.append)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.restarted) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(restarts, "FIRST_S", 0.01)
    found = Watched(Runner(tmp_path / "logs"))
    task = asyncio.create_task(found.loop.run())
    yield found
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await found.runner.stop_all()


async def test_a_killed_program_runs_again_and_the_others_stay(
    watched: Watched, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        await watched.runner.start(python(name, SLEEPS, tmp_path))
    before = watched.runner.pids()
    os.kill(before["one"], signal.SIGKILL)
    await watched.until(1)
    now = watched.runner.pids()
    assert watched.restarted == ["one"]
    assert now["one"] != before["one"]
    assert now["other"] == before["other"]
    assert watched.lines[0].startswith("one ended with signal SIGKILL; restart in 0.0 s; its log")


async def test_a_program_that_was_stopped_stays_down(watched: Watched, tmp_path: Path) -> None:
    await watched.runner.start(python("stopped", SLEEPS, tmp_path))
    await watched.runner.stop("stopped")
    await watched.runner.start(python("killed", SLEEPS, tmp_path))
    os.kill(watched.runner.pids()["killed"], signal.SIGKILL)
    await watched.until(1)
    assert watched.restarted == ["killed"]
    assert "stopped" not in watched.runner.pids()


async def test_a_program_that_ends_before_it_is_ready_is_tried_again(
    watched: Watched, tmp_path: Path
) -> None:
    """It fails at its second start, and runs at its third."""
    count = tmp_path / "count"
    code = (
        f"import sys; count = pathlib.Path({str(count)!r})\n"
        "starts = len(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text('x' * starts)\n"
        f"if starts == 2: sys.exit(3)\n{SLEEPS}"
    )
    await watched.runner.start(python("flaky", code, tmp_path))
    (tmp_path / "flaky.ready").unlink()
    os.kill(watched.runner.pids()["flaky"], signal.SIGKILL)
    await watched.until(1)
    assert count.read_text() == "xxx"
    assert any("flaky ended before it was ready" in line for line in watched.lines)
