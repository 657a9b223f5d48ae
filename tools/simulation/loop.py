"""An event loop whose time jumps to the next timer, with processes that can be stopped."""

import asyncio
import contextvars
import functools
import itertools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

EPOCH_UNIX_S = 1_700_000_000.0
"""Wall time at the start of a simulation."""


class StuckLoopError(RuntimeError):
    """A deadlock: nothing is ready and no timer runs."""


class Process:
    """A process from start to end: its tasks, and its ready callbacks while it is stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.killed = False
        self.clock_ahead_s = 0.0
        """Error of its host's wall clock; the monotonic clock is correct."""
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._frozen: list[asyncio.Handle] | None = None

    @property
    def paused(self) -> bool:
        """Whether it is stopped, as by SIGSTOP."""
        return self._frozen is not None

    def pause(self, loop: "VirtualLoop") -> None:
        """Stop its callbacks until ``resume``; its connections stay open."""
        if self._frozen is None:
            self._frozen = loop.take_ready(self)
            loop.paused_processes += 1

    def resume(self, loop: "VirtualLoop") -> None:
        """Continue where it was stopped."""
        if self._frozen is not None:
            frozen, self._frozen = self._frozen, None
            loop.paused_processes -= 1
            loop.put_ready(frozen)

    def defer(self, handle: asyncio.Handle) -> None:
        """Run the handle after ``resume``."""
        assert self._frozen is not None
        self._frozen.append(handle)

    def kill(self, loop: "VirtualLoop") -> None:
        """Cancel its tasks; its connections fail from now on."""
        self.killed = True
        self.resume(loop)
        for task in list(self.tasks):
            task.cancel()


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
"""The current process; None outside of processes."""


class _Task(asyncio.Task[Any]):
    """A task hashed by a number, so that the order of sets of tasks is deterministic."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _VirtualSelector(selectors.BaseSelector):
    """Advances the clock instead of waiting for files."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckLoopError("nothing is ready and no timer runs")
        # A minimal step: rounding must not keep a timer just ahead of the clock.
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
    """Virtual time since the start; work for threads runs at once."""

    def __init__(self) -> None:
        self._virtual_selector = _VirtualSelector()
        super().__init__(self._virtual_selector)
        self.paused_processes = 0
        self._numbers: Iterator[int] = itertools.count(1)
        self._outside: dict[asyncio.Task[None], None] = {}
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual_selector.now_s

    def now_unix_s(self) -> float:
        """Virtual wall time of the servers."""
        return EPOCH_UNIX_S + self.time()

    def wall_unix_s(self) -> float:
        """Virtual wall time of the current process' host."""
        process = CURRENT.get()
        return self.now_unix_s() + (process.clock_ahead_s if process is not None else 0.0)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run the callback soon, or after its process continues."""
        if not self.paused_processes:
            handle = asyncio.Handle(callback, args, self, context)
            self._ready.append(handle)  # type: ignore[attr-defined]
            return handle
        context = contextvars.copy_context() if context is None else context
        process = context.get(CURRENT)
        if process is not None and process.paused:
            handle = asyncio.Handle(callback, args, self, context)
            process.defer(handle)
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at a time, or after its process continues."""
        context = context or contextvars.copy_context()
        timer = super().call_at(when, _nothing, context=context)
        timer._callback = functools.partial(self._due, timer, callback)  # type: ignore[attr-defined]
        timer._args = args
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 raised to the awaiting task
            future.set_exception(error)
        return future

    def take_ready(self, process: Process) -> list[asyncio.Handle]:
        """Remove and return a process' ready handles."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        own = []
        for index, handle in enumerate(ready):
            if _process_of(handle) is process:
                own.append(handle)
                # The loop has already counted the ready handles: keep their number.
                ready[index] = asyncio.Handle(_nothing, (), self)
        return own

    def put_ready(self, handles: list[asyncio.Handle]) -> None:
        """Make handles ready, in their order."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def run_outside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in no process, as servers and administrators do."""
        token = CURRENT.set(None)
        try:
            task = self.create_task(work)
            self._outside[task] = None
            task.add_done_callback(lambda ended: self._outside.pop(ended, None))
        finally:
            CURRENT.reset(token)

    def _due(self, timer: asyncio.TimerHandle, callback: Callable[..., Any], *args: Any) -> None:
        process = CURRENT.get()
        if process is None or not process.paused:
            callback(*args)
            return

        def later() -> None:
            if not timer.cancelled():
                callback(*args)

        process.defer(asyncio.Handle(later, (), self, contextvars.copy_context()))

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        task = _Task(next(self._numbers), coroutine, loop=loop, **more)
        context = more.get("context") or contextvars.copy_context()
        process = context.get(CURRENT)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda ended: process.tasks.pop(ended, None))
            if process.killed:
                task.cancel()
        return task


def running_loop() -> VirtualLoop:
    """The running loop, which must be virtual."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def _process_of(handle: asyncio.Handle) -> Process | None:
    found: Process | None = handle._context.get(CURRENT)  # type: ignore[attr-defined]
    return found


def _nothing() -> None:
    """Placeholder of a timer's callback."""
