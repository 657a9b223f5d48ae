"""Programs of a local stack: each its own process group, log file and readiness.

A program is ready when its check says so. Stopping goes through the orders from the highest
to the lowest: SIGTERM, then SIGKILL after ``stop_within_s``. Children die with this process
(see ``bound``).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.errors import PermanentError

Ready = Callable[[], Awaitable[bool]]
_POLL_S = 0.03
_TAIL_LINES = 15
_BOUND = str(Path(__file__).with_name("bound.py"))
_NOT_INHERITED = ("DRAY_", "KUBECONFIG", "NATS_")


class ProgramFailedError(PermanentError):
    """A program ended before it was ready, or was not ready in time."""

    def __init__(self, name: str, why: str, log: Path) -> None:
        self.tail = _tail(log)
        said = f"\n{self.tail}" if self.tail else " (it printed nothing)"
        super().__init__(f"{name} {why}; the end of {log}:{said}")
        self.name = name

    @property
    def lost_a_port(self) -> bool:
        """Whether somebody else took the port it was given."""
        return "address already in use" in self.tail


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run, and how to know that it does its work."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process's own, less every setting of dray's."""
    ready: Ready | None = None
    ready_within_s: float = 60.0
    stop_within_s: float = 10.0
    order: int = 0
    """Programs of a higher order stop first."""


@dataclass(slots=True)
class _Running:
    program: ProcessSpec
    process: subprocess.Popen[bytes]
    ready: bool = False
    stopping: bool = False


def dying_with_this_process(argv: Sequence[str]) -> list[str]:
    """The command as one that the kernel ends when this process ends."""
    return [sys.executable, "-I", "-S", _BOUND, str(os.getpid()), *argv]


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all; the first failure cancels the others and is raised as it is."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()  # no more than a look at those that are done
        await asyncio.gather(*tasks, return_exceptions=True)


class Runner:
    """Starts and stops programs, with their logs in ``logs``."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, _Running] = {}

    async def start(self, program: ProcessSpec) -> None:
        """Start and wait until it is ready.

        Raises:
            ProgramFailedError: it ended, or was not ready within ``ready_within_s``.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        self._running[program.name] = _Running(program, self._spawn(program))
        await self._until_ready(program)

    async def start_all(self, programs: Iterable[ProcessSpec]) -> None:
        """Start several at once. Raises the first ProgramFailedError, and waits for no other."""
        await together(*map(self.start, programs))

    async def restart(self, name: str) -> None:
        """Stop it if it runs, then start the same program again and wait until it is ready."""
        await self.replace(self.program(name))

    async def replace(self, program: ProcessSpec) -> None:
        """Stop the one of its name if it runs, then start this one and wait until it is ready."""
        await self.stop(program.name)
        await self.start(program)

    def program(self, name: str) -> ProcessSpec:
        """What was started under that name last."""
        return self._running[name].program

    async def stop(self, name: str) -> None:
        """SIGTERM, then SIGKILL when it takes too long; returns when it is gone."""
        await self._end([self._running[name]])

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        running = self._running[name]
        running.stopping = True
        _signal(running, signal.SIGKILL)
        await _gone(running, 10.0)

    def pause(self, name: str) -> None:
        """Stop its processor time (SIGSTOP) until ``resume``."""
        _signal(self._running[name], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused program go on."""
        _signal(self._running[name], signal.SIGCONT)

    async def stop_all(self) -> None:
        """Stop everything, the highest order first."""
        orders = sorted({running.program.order for running in self._running.values()})
        for order in reversed(orders):
            await self._end([r for r in self._running.values() if r.program.order == order])
        self._running.clear()

    def pids(self) -> dict[str, int]:
        """Process ids of what runs now, by name."""
        return {
            name: running.process.pid
            for name, running in self._running.items()
            if running.process.poll() is None
        }

    def log(self, name: str) -> Path:
        """The file with everything the program printed."""
        return self._logs / f"{name}.log"

    async def first_exit(self) -> str:
        """Wait until a program ends that nobody stopped; says which and how."""
        while True:
            for name, running in self._running.items():
                code = running.process.poll()
                if code is not None and not running.stopping:
                    return f"{name} ended with {_spell(code)}; its log is {self.log(name)}"
            await asyncio.sleep(0.2)

    def _spawn(self, program: ProcessSpec) -> subprocess.Popen[bytes]:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)
        }
        argv = dying_with_this_process(program.argv)
        with self.log(program.name).open("ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment | dict(program.environment),
                start_new_session=True,
            )

    async def _until_ready(self, program: ProcessSpec) -> None:
        deadline = time.monotonic() + program.ready_within_s
        while True:
            self._raise_if_one_ended(program.name)
            if program.ready is None or await program.ready():
                self._running[program.name].ready = True
                return
            if time.monotonic() > deadline:
                why = f"was not ready within {program.ready_within_s:g} s"
                raise ProgramFailedError(program.name, why, self.log(program.name))
            await asyncio.sleep(_POLL_S)

    def _raise_if_one_ended(self, awaited: str) -> None:
        """The awaited program, or one that was ready: it may wait for just that one."""
        for name, running in self._running.items():
            code = running.process.poll()
            relevant = name == awaited or running.ready
            if code is not None and relevant and not running.stopping:
                running.stopping = True
                raise ProgramFailedError(name, f"ended with {_spell(code)}", self.log(name))

    async def _end(self, ending: list[_Running]) -> None:
        for running in ending:
            running.stopping = True
            _signal(running, signal.SIGTERM)
            _signal(running, signal.SIGCONT)
        await asyncio.gather(*(_end_within_its_time(running) for running in ending))


async def _end_within_its_time(running: _Running) -> None:
    if not await _gone(running, running.program.stop_within_s):
        _signal(running, signal.SIGKILL)
        await _gone(running, 10.0)


async def _gone(running: _Running, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while running.process.poll() is None:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _signal(running: _Running, number: signal.Signals) -> None:
    if running.process.poll() is None:
        os.killpg(running.process.pid, number)


def _spell(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
