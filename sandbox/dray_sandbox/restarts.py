"""Restarts programs that ended by themselves, each with its own backoff."""

import asyncio
import time
from collections.abc import Callable

from dray.api.errors import DrayError
from dray.runtime.backoff import Backoff
from dray_sandbox.processes import Runner

FIRST_S, _MOST_S = 0.5, 30.0
"""The shortest and the longest wait before a restart."""
_STABLE_S = 60.0
"""After a program was ready for this long, its next wait is the shortest one again."""
_POLL_S = 0.2


class RestartLoop:
    """Restarts the runner's programs; ``on_restart`` gets the name of each that is ready again."""

    def __init__(
        self, runner: Runner, progress: Callable[[str], None], on_restart: Callable[[str], None]
    ) -> None:
        self._runner = runner
        self._progress = progress
        self._on_restart = on_restart
        self._backoffs: dict[str, Backoff] = {}
        self._ready_s: dict[str, float] = {}
        self._restarting: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                for name, how in self._runner.ended().items():
                    if name not in self._restarting:
                        self._restarting[name] = asyncio.create_task(self._restart(name, how))
                await asyncio.sleep(_POLL_S)
        finally:
            tasks = list(self._restarting.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _restart(self, name: str, how: str) -> None:
        backoff = self._backoffs.setdefault(name, Backoff(FIRST_S, _MOST_S))
        if time.monotonic() - self._ready_s.get(name, 0.0) > _STABLE_S:
            backoff.reset()
        wait_s = backoff.next_s()
        log = self._runner.log(name)
        self._progress(f"{name} ended with {how}; restart in {wait_s:.1f} s; its log is {log}")
        try:
            await asyncio.sleep(wait_s)
            await self._runner.revive(name)
            self._ready_s[name] = time.monotonic()
            self._on_restart(name)
            self._progress(f"{name} runs again")
        except DrayError as error:
            self._progress(str(error))
        finally:
            del self._restarting[name]
