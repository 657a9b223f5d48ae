"""A module run under a sampling profiler: ``python -m benchmarks.sampled FOLDER MODULE``.

SIGUSR1 starts sampling; a second one writes ``FOLDER/<pid>.stacks``: one line per stack, outermost
frame first, and how many times it was sampled (the input format of flame graphs). A sample is taken
every 4 ms of the process's CPU time, so waiting is not sampled.
"""

import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.004


class Sampler:
    """Counts the stacks of the main thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.getpid()}.stacks"
        self._stacks: Counter[tuple[str, ...]] = Counter()
        self._running = False

    def install(self) -> None:
        """Listen for the two signals."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, self._toggle)
        # A system call that a sample interrupts continues by itself.
        signal.siginterrupt(signal.SIGPROF, False)
        signal.siginterrupt(signal.SIGUSR1, False)

    def _toggle(self, number: int, frame: FrameType | None) -> None:
        self._running = not self._running
        every_s = EVERY_S if self._running else 0.0
        signal.setitimer(signal.ITIMER_PROF, every_s, every_s)
        if self._running:
            self._stacks.clear()
            return
        lines = (f"{';'.join(stack)} {count}\n" for stack, count in self._stacks.items())
        partial = self._file.with_suffix(".partial")
        partial.write_text("".join(lines))
        partial.rename(self._file)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        names = []
        while frame is not None:
            module = frame.f_globals.get("__name__", "?")
            names.append(f"{module}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        self._stacks[tuple(reversed(names))] += 1


def main() -> None:
    """Run the module as ``python -m`` would."""
    _, folder, module, *arguments = sys.argv
    Sampler(Path(folder)).install()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
