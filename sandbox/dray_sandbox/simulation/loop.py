"""An event loop whose time jumps to the next timer, and processes that can be stopped in it."""

import asyncio
import contextvars
import functools
import itertools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

EPOCH_UNIX_S = 1_700_000_000.0
"""Wall time when a simulation begins."""


class StuckLoopError(RuntimeError):
    """Nothing is ready and no timer runs: everybody waits for somebody for ever."""


class Process:
    """One life of a process: all tasks begun by it, and what waits while it is stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.clock_ahead_s = 0.0
        """How wrong its host's wall clock is; the monotonic one is right."""
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._frozen: list[asyncio.Handle] | None = None

    @property
    def paused(self) -> bool:
        """Whether it is stopped, as by SIGSTOP."""
        return self._frozen is not None

    def pause(self, loop: "VirtualLoop") -> None:
        """Run nothing of it until ``resume``; its connections stay as they are."""
        if self._frozen is None:
            self._frozen = loop.withdraw(self)

    def resume(self, loop: "VirtualLoop") -> None:
        """Go on where it was stopped."""
        if self._frozen is not None:
            frozen, self._frozen = self._frozen, None
            loop.bring_back(frozen)

    def keep(self, handle: asyncio.Handle) -> None:
        """Something to run after ``resume``."""
        assert self._frozen is not None
        self._frozen.append(handle)

    def kill(self, loop: "VirtualLoop") -> None:
        """As kill -9: whatever still runs of it reaches nobody (the doors are dead)."""
        self.dead = True
        self.resume(loop)
        for task in list(self.tasks):
            task.cancel()


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
"""The process that is running; None is the world outside."""


class _Task(asyncio.Task[Any]):
    """Hashed by a number: the order of sets of tasks must not depend on addresses."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Jump(selectors.BaseSelector):
    """Waits for no file: it moves the clock on instead."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckLoopError("nothing is ready and no timer runs")
        # Work takes time: who waits for a moment that rounding puts just ahead must reach it.
        self.now_s += max(timeout, 1e-6)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """Seconds since the simulation began; threads' work is done at once."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self._numbers: Iterator[int] = itertools.count(1)
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds."""
        return self._jump.now_s

    def now_unix_s(self) -> float:
        """Virtual wall time, as the servers have it."""
        return EPOCH_UNIX_S + self.time()

    def wall_unix_s(self) -> float:
        """Virtual wall time, as the process that is running has it."""
        process = CURRENT.get()
        return self.now_unix_s() + (process.clock_ahead_s if process is not None else 0.0)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Ready at once, unless its process is stopped."""
        context = context or contextvars.copy_context()
        process = context.get(CURRENT)
        if process is not None and process.paused:
            handle = asyncio.Handle(callback, args, self, context)
            process.keep(handle)
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Ready when its time has come and its process runs."""
        context = context or contextvars.copy_context()
        timer = super().call_at(when, _nothing, context=context)
        timer._callback = functools.partial(self._due, timer, callback)  # type: ignore[attr-defined]
        timer._args = args
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Nothing is slow here."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 whoever awaits it gets it
            future.set_exception(error)
        return future

    def withdraw(self, process: Process) -> list[asyncio.Handle]:
        """Take what is ready of a process away."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        own = []
        for index, handle in enumerate(ready):
            if _process_of(handle) is process:
                own.append(handle)
                # The loop has counted what is ready already: their places stay.
                ready[index] = asyncio.Handle(_nothing, (), self)
        return own

    def bring_back(self, handles: list[asyncio.Handle]) -> None:
        """Make handles ready, in their order."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def _due(self, timer: asyncio.TimerHandle, callback: Callable[..., Any], *args: Any) -> None:
        process = CURRENT.get()
        if process is None or not process.paused:
            callback(*args)
            return

        def later() -> None:
            if not timer.cancelled():
                callback(*args)

        process.keep(asyncio.Handle(later, (), self, contextvars.copy_context()))

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        task = _Task(next(self._numbers), coroutine, loop=loop, **more)
        context = more.get("context") or contextvars.copy_context()
        process = context.get(CURRENT)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda ended: process.tasks.pop(ended, None))
            if process.dead:
                task.cancel()
        return task


def _process_of(handle: asyncio.Handle) -> Process | None:
    found: Process | None = handle._context.get(CURRENT)  # type: ignore[attr-defined]
    return found


def _nothing() -> None:
    """Stands in until a timer knows itself."""
