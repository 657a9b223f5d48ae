"""What becomes of a stack whose process ends, and of a second one of its name."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.sandbox_stack.test_processes import SLEEPS, python
from tests.unit.sandbox_stack.test_stack_file import a_stack

from dray_cli.down import down
from dray_sandbox import background_stack, restarts, supervisor
from dray_sandbox.background_stack import InterruptedStartError, start_detached
from dray_sandbox.layout import StackOptions
from dray_sandbox.paths import FOLDER_VARIABLE
from dray_sandbox.stack import Stack
from dray_sandbox.stack_file import StackFile, read_stack_file
from dray_sandbox.stack_lock import StackLock, StackLockedError
from dray_sandbox.supervisor import ProcessEndedError, run_until_signal


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of all stacks."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(restarts, "FIRST_S", 0.01)
    monkeypatch.setattr(supervisor, "Stack", OneProgram)
    return tmp_path


class OneProgram(Stack):
    """A stack of one program that sleeps."""

    async def _start(self) -> None:
        await self.runner.start(python("sleeper", SLEEPS, self.directory))
        self._record = a_stack(self.options.name)
        self._write_record()


def kill_the_process(stack: StackFile) -> None:
    os.kill(stack.processes[0].pid, signal.SIGKILL)


async def test_without_restarts_the_stack_ends_with_its_first_process() -> None:
    options = StackOptions(name="one", restart=False)

    with pytest.raises(ProcessEndedError, match="sleeper ended with signal SIGKILL"):
        await run_until_signal(options, lambda line: None, kill_the_process)

    assert read_stack_file("one") is None


async def test_a_process_that_is_started_again_is_counted_in_the_stacks_file() -> None:
    running = asyncio.create_task(
        run_until_signal(StackOptions(name="one"), lambda line: None, kill_the_process)
    )

    async with asyncio.timeout(30):
        while (found := read_stack_file("one")) is None or not found.processes[0].restarts:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

    assert found.processes[0].restarts == 1


async def test_one_of_two_starts_of_a_name_wins() -> None:
    first, second = OneProgram(StackOptions(name="one")), OneProgram(StackOptions(name="one"))

    results = await asyncio.gather(first.start(), second.start(), return_exceptions=True)
    try:
        assert [type(one) for one in results] == [StackFile, StackLockedError]
        assert read_stack_file("one") is not None
    finally:
        await first.stop()
    await second.start()
    await second.stop()


async def test_a_start_that_fails_lets_the_next_one_start() -> None:
    (Path(os.environ[FOLDER_VARIABLE]) / "one" / "kubernetes" / "etcd").mkdir(parents=True)
    failing = OneProgram(StackOptions(name="one", control_plane="sandbox", keep=True))
    with pytest.raises(Exception, match="had the real control plane"):
        await failing.start()
    async with OneProgram(StackOptions(name="one")):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_detached_start_that_a_signal_ends_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    supervisors: list[subprocess.Popen[bytes]] = []

    def spawn(_: Path, log: Path, lock: StackLock) -> subprocess.Popen[bytes]:
        log.touch()
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        supervisors.append(subprocess.Popen(command, pass_fds=(lock.fileno,)))
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), number)
        return supervisors[0]

    monkeypatch.setattr(background_stack, "_spawn", spawn)
    with pytest.raises(InterruptedStartError, match="interrupted before the stack was ready"):
        await start_detached(StackOptions(name="one"), lambda line: None)
    assert supervisors[0].wait(30) == -signal.SIGTERM
    StackLock.take("one").release()


def test_a_stack_that_starts_is_not_taken_down() -> None:
    lock = StackLock.take("one")
    done = CliRunner().invoke(down, ["--stack", "one"])
    lock.release()
    assert "another command is starting or stopping a stack named 'one'" in str(done.exception)


def test_a_program_that_inherits_the_lock_has_it_until_it_ends() -> None:
    lock = StackLock.take("one")
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock.fileno,)
    )
    lock.release()
    with pytest.raises(StackLockedError):
        StackLock.take("one")
    process.communicate(b"\n")
    StackLock.take("one").release()
