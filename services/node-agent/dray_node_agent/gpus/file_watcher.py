"""Watches files. One thread checks the files of all simulated nodes of a process."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LOOK_EVERY_S: Final = 0.1


@dataclass(slots=True, eq=False)
class _WatchedFile:
    path: Path
    on_change: Callable[[], None]
    seen: tuple[int, int, int]


class FileWatcher:
    """Calls back, in its own thread, after each change of a watched file. The thread runs
    while there are such files; the end of the process does not wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: set[_WatchedFile] = set()
        self._runs = False

    def watch(self, path: Path, on_change: Callable[[], None]) -> Callable[[], None]:
        """Watch a file, which need not exist, until the returned function is called."""
        file = _WatchedFile(path, on_change, _version(path))
        with self._lock:
            self._files.add(file)
            if not self._runs:
                threading.Thread(target=self._run, name="file watcher", daemon=True).start()
                self._runs = True

        def end() -> None:
            with self._lock:
                self._files.discard(file)

        return end

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            with self._lock:
                if not self._files:
                    self._runs = False
                    return
                files = tuple(self._files)
            for file in files:
                if (now := _version(file.path)) != file.seen:
                    file.seen = now
                    file.on_change()


def _version(path: Path) -> tuple[int, int, int]:
    """A value that differs after each change of a file; zeros if the file does not exist. Changes
    within one tick of the kernel's clock, a few milliseconds, are seen only by the size."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_ino, status.st_size
