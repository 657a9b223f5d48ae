"""Reads GPUs in its own thread, because a call to a driver may hang.

The thread is a daemon: neither the event loop nor the end of the process waits for it.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from dray_node_agent.decisions.gpus import GpuSnapshot, GpuUsage
from dray_node_agent.gpus.source import GpuSource, GpusUnavailableError

T = TypeVar("T")
DEADLINE_S: Final = 10.0
"""NVML answers in milliseconds; after a card failed, in seconds."""
_CLOSE_DEADLINE_S: Final = 2.0


class GpuReader:
    """Calls one source, one call at a time. A call that misses its deadline continues; the next
    call first waits for it, up to its own deadline."""

    def __init__(self, source: GpuSource, *, deadline_s: float = DEADLINE_S) -> None:
        self._source = source
        self._deadline_s = deadline_s
        self._thread = _DaemonThread("gpus")
        self._turn = asyncio.Lock()
        self._late: asyncio.Future[Any] | None = None
        self._event = asyncio.Event()

    async def read(self) -> GpuSnapshot:
        """The GPUs and their health now. Raises GpusUnavailableError."""
        loop = asyncio.get_running_loop()

        def on_event() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, its thread has not
                loop.call_soon_threadsafe(self._event.set)

        self._source.listen(on_event)
        return await self._call("read the GPUs", self._source.read, self._deadline_s)

    async def read_usage(self) -> tuple[GpuUsage, ...]:
        """How much of each GPU is used. Raises GpusUnavailableError."""
        return await self._call(
            "read the use of the GPUs", self._source.read_usage, self._deadline_s
        )

    async def set_time_slice(self, uuid: str, number: int) -> None:
        """Set a card's time slice. Raises TimeSliceError, GpusUnavailableError."""
        purpose = f"set the time slice of {uuid}"
        await self._call(
            purpose, lambda: self._source.set_time_slice(uuid, number), self._deadline_s
        )

    async def wait(self, longest_s: float) -> None:
        """Wait until a GPU's health may have changed, but not longer than ``longest_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._event.wait()
        self._event.clear()

    async def close(self) -> None:
        """Release the driver, unless it hangs. Raises GpusUnavailableError."""
        deadline_s = min(self._deadline_s, _CLOSE_DEADLINE_S)
        await self._call("release the driver", self._source.close, deadline_s)

    async def _call(self, purpose: str, call: Callable[[], T], deadline_s: float) -> T:
        async with self._turn:
            if self._late is not None:
                await self._within(deadline_s, self._late)
            started = asyncio.get_running_loop().run_in_executor(self._thread, call)
            await self._within(deadline_s, started)
            try:
                return started.result()
            except (OSError, ValueError, ArithmeticError) as error:
                # A driver file can't be read, or NVML's answer is invalid.
                raise GpusUnavailableError(f"could not {purpose}: {error}") from error

    async def _within(self, deadline_s: float, call: "asyncio.Future[Any]") -> None:
        self._late = call
        done, _ = await asyncio.wait([call], timeout=deadline_s)
        if not done:
            raise GpusUnavailableError(
                f"the GPUs have not answered for {deadline_s:g} s: the driver hangs; restart the "
                "node, or reset the GPU that `nvidia-smi` hangs on"
            )
        self._late = None
        call.exception()  # asyncio would otherwise log what a late call raised


class _DaemonThread(Executor):
    """An executor of one thread, which does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        self._work.put((future, lambda: fn(*args, **kwargs)))
        if self._thread.ident is None:
            self._thread.start()
        return future

    def _run(self) -> None:
        while True:
            future, call = self._work.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)
