"""Programs of a local stack: each has its own process group, log file and readiness check.

Programs stop by order, the highest first: SIGTERM, then SIGKILL after ``stop_within_s``. They end
with this process (see ``parent_death``).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.errors import PermanentError
from dray_sandbox.tcp_ports import free_port

Ready = Callable[[], Awaitable[bool]]
_POLL_S = 0.03
_LOOKS = 50
"""The pause between two readiness checks is the time since the start, divided by this number."""
_TAIL_LINES = 15
_PARENT_DEATH = str(Path(__file__).with_name("parent_death.py"))
_NOT_INHERITED = ("DRAY_", "KUBECONFIG", "NATS_")
_PORT_ATTEMPTS = 3


class ProgramFailedError(PermanentError):
    """A program ended before it was ready, or was not ready in time."""

    def __init__(self, name: str, why: str, log: Path) -> None:
        self.tail = _tail(log)
        tail = f"\n{self.tail}" if self.tail else " (it printed nothing)"
        super().__init__(f"{name} {why}; the end of {log}:{tail}")
        self.name = name

    @property
    def lost_a_port(self) -> bool:
        """Whether another program took its port."""
        return "address already in use" in self.tail


class PortsTakenError(PermanentError):
    """Other programs took the ports that were free a moment before."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A program to run, and its readiness check."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of this process, without dray's settings."""
    ready: Ready | None = None
    ready_within_s: float = 60.0
    stop_within_s: float = 10.0
    order: int = 0
    """Programs of a higher order stop first."""
    health_url: str = ""
    """The URL of its readiness page, or else its address; empty if it has neither."""
    parent_death_signal: signal.Signals = signal.SIGKILL
    """The signal that it gets if this process ends without stopping it. SIGTERM is for a program
    that must clean up."""
    pid_file: Path | None = None
    """The program writes this file and its readiness check reads it. A file of an earlier run is
    removed first."""


@dataclass(slots=True)
class _Running:
    program: ProcessSpec
    process: subprocess.Popen[bytes]
    ready: bool = False
    stopping: bool = False


def bound_to_this_process(
    argv: Sequence[str], number: signal.Signals = signal.SIGKILL
) -> list[str]:
    """The command, wrapped so that it gets signal ``number`` when this process ends."""
    return [sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid()), str(int(number)), *argv]


async def gather_or_cancel(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all. The first failure cancels the others and is raised unchanged."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()  # without effect on tasks that are done
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def end_signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    try:
        yield event
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def first_done(task: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Wait until the task is done or the event is set."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


class Runner:
    """Starts and stops programs; their logs are in ``logs``."""

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
        """Start several at once. Raises the first ProgramFailedError without waiting for others."""
        await gather_or_cancel(*map(self.start, programs))

    async def start_on_free_port(self, make: Callable[[int], ProcessSpec]) -> int:
        """Start the program that ``make`` returns for a free port; returns the port.

        Raises:
            ProgramFailedError: it failed for another reason than its port.
            PortsTakenError: other programs took every port that was tried.
        """
        taken: list[str] = []
        while len(taken) < _PORT_ATTEMPTS:
            port = free_port()
            program = make(port)
            try:
                await self.start(program)
            except ProgramFailedError as error:
                if not error.lost_a_port:
                    raise
                taken.append(str(port))
            else:
                return port
        raise PortsTakenError(
            f"{program.name} can't start: other programs took ports {', '.join(taken)} of "
            "127.0.0.1 before it listened on them; run it again, with fewer stacks at once"
        )

    async def restart(self, name: str) -> None:
        """Stop it if it runs, then start the same program again and wait until it is ready."""
        await self.replace(self.program(name))

    async def replace(self, program: ProcessSpec) -> None:
        """Stop the program of that name if it runs, then start this one; returns when ready."""
        await self.stop(program.name)
        await self.start(program)

    def program(self, name: str) -> ProcessSpec:
        """The program last started under that name."""
        return self._running[name].program

    async def stop(self, name: str) -> None:
        """SIGTERM, then SIGKILL after ``stop_within_s``; returns when it has ended."""
        await self._end([self._running[name]])

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when it has ended."""
        running = self._running[name]
        running.stopping = True
        _signal(running, signal.SIGKILL)
        await _gone(running, 10.0)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        _signal(self._running[name], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        _signal(self._running[name], signal.SIGCONT)

    async def stop_all(self) -> None:
        """Stop everything, the highest order first."""
        orders = sorted({running.program.order for running in self._running.values()})
        for order in reversed(orders):
            await self._end([r for r in self._running.values() if r.program.order == order])
        self._running.clear()

    def pids(self) -> dict[str, int]:
        """Process ids of the running programs, by name."""
        return {
            name: running.process.pid
            for name, running in self._running.items()
            if running.process.poll() is None
        }

    def last_pids(self) -> dict[str, int]:
        """Process ids of all programs, by name; for a program that has ended, its last id."""
        return {name: running.process.pid for name, running in self._running.items()}

    def log(self, name: str) -> Path:
        """The file of the program's output."""
        return self._logs / f"{name}.log"

    def ended(self) -> dict[str, str]:
        """The programs that ended by themselves, each with its exit code or signal."""
        codes = {name: running.process.poll() for name, running in self._running.items()}
        return {
            name: _exit_text(code)
            for name, code in codes.items()
            if code is not None and not self._running[name].stopping
        }

    async def first_exit(self) -> str:
        """Wait until a program ends by itself; returns a description."""
        while True:
            for name, how in self.ended().items():
                return f"{name} ended with {how}; its log is {self.log(name)}"
            await asyncio.sleep(0.2)

    async def revive(self, name: str) -> None:
        """Restart a program that has ended; returns when it is ready.

        Raises:
            ProgramFailedError: it ended again, or was not ready in time and was killed. ``ended``
                then lists it.
        """
        program = self.program(name)
        self._running[name] = running = _Running(program, self._spawn(program))
        began_s = time.monotonic()
        while running.process.poll() is None:
            if program.ready is None or await program.ready():
                running.ready = True
                return
            if time.monotonic() > began_s + program.ready_within_s:
                _signal(running, signal.SIGKILL)
            await _pause(began_s)
        raise ProgramFailedError(name, "ended before it was ready", self.log(name))

    def _spawn(self, program: ProcessSpec) -> subprocess.Popen[bytes]:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)
        }
        argv = bound_to_this_process(program.argv, program.parent_death_signal)
        if program.pid_file is not None:
            program.pid_file.unlink(missing_ok=True)
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
        began_s = time.monotonic()
        while True:
            self._raise_if_one_ended(program.name)
            if program.ready is None or await program.ready():
                self._running[program.name].ready = True
                return
            if time.monotonic() > began_s + program.ready_within_s:
                why = f"was not ready within {program.ready_within_s:g} s"
                raise ProgramFailedError(program.name, why, self.log(program.name))
            await _pause(began_s)

    def _raise_if_one_ended(self, waited_for: str) -> None:
        """Check ``waited_for`` and all programs that were ready: it may depend on one of them."""
        for name, running in self._running.items():
            code = running.process.poll()
            relevant = name == waited_for or running.ready
            if code is not None and relevant and not running.stopping:
                running.stopping = True
                raise ProgramFailedError(name, f"ended with {_exit_text(code)}", self.log(name))

    async def _end(self, ending: list[_Running]) -> None:
        for running in ending:
            running.stopping = True
            _signal(running, signal.SIGTERM)
            _signal(running, signal.SIGCONT)
        await asyncio.gather(*(_end_one(running) for running in ending))


async def _pause(began_s: float) -> None:
    """Wait between two readiness checks. A program that starts slowly is checked rarely, because an
    answer about thousands of nodes costs it time."""
    await asyncio.sleep(max(_POLL_S, (time.monotonic() - began_s) / _LOOKS))


async def _end_one(running: _Running) -> None:
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


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
