"""Progress on standard error: a live line on a terminal, lines with elapsed times in a pipe."""

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress

_DONE = "ready: "
"""The beginning of lines that report a finished step."""
_EVERY_S = 5.0
"""Time between two lines about running work in a pipe."""


class StepProgress:
    """Prints lines about steps. On a terminal the last line is live, and the lines of finished
    steps stay. Lines after the context's end are printed as in a pipe."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._live = _live_line()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, line: str) -> None:
        elapsed_s = time.monotonic() - self._began_s
        if self._live is None:
            click.echo(f"{elapsed_s:6.1f} s  {line}", err=True)
            return
        if line.startswith(_DONE):
            self._live.console.print(f"{elapsed_s:6.1f} s  {line}", highlight=False, markup=False)
        self._live.update(self._live.task_ids[0], description=line)


class WorkProgress:
    """Shows the progress of one piece of work: on a terminal as a bar, if its end is known."""

    def __init__(self) -> None:
        self._began_s = self._printed_s = time.monotonic()
        self._live = _live_line()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, text: str, done: float | None = None) -> None:
        """``done``: the part that is done, from 0 to 1; None: unknown."""
        now_s = time.monotonic()
        if self._live is not None:
            total = None if done is None else 1.0
            task = self._live.task_ids[0]
            self._live.update(task, description=text, total=total, completed=done or 0.0)
        elif now_s - self._printed_s >= _EVERY_S:
            self._printed_s = now_s
            click.echo(f"{now_s - self._began_s:6.1f} s  {text}", err=True)


def _live_line() -> "Progress | None":
    """The live line; None in a pipe."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    live = Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        BarColumn(20),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    live.add_task("", total=None)
    return live
