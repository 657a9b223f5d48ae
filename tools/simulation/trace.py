"""The trace of a run: every change in Kubernetes, every log line, every fault."""

import asyncio
import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Iterator
from typing import Any

import structlog

from dray.kube.memory_store import Event
from dray.kube.ports import EVENTS, LEASES
from tools.simulation.loop import CURRENT

_UNRECORDED = (EVENTS, LEASES)
ALARMS = (
    "double allocation prevented",
    "a device is allocated twice",
    "execution failed",
    "a background task failed",
)
"""Log lines that must not occur."""
ENDINGS = ("the term ended", "no longer leading", "election failed", "pool left to other replicas")
"""Log lines that must not occur unless data is lost or a process is killed."""


class SimulationTrace:
    """The last lines, a digest of all lines, and alarms. With no lines it keeps the alarms only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, most_lines: int = 400) -> None:
        self.lines: deque[str] = deque(maxlen=most_lines)
        self.alarms: list[str] = []
        self.endings: list[str] = []
        self._loop = loop
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The digest of all lines so far."""
        return self._digest.hexdigest()

    def record(self, who: str, what: str) -> None:
        """Add one line."""
        if not self.lines.maxlen:
            return
        line = f"{self._loop.time():9.3f} {who:12} {what}"
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    def event(self, event: Event) -> None:
        """Add a change in Kubernetes."""
        if not self.lines.maxlen:
            return
        process = CURRENT.get()
        obj = event.after if event.after is not None else event.before
        assert obj is not None
        verb = "deleted" if event.after is None else "added" if event.before is None else "changed"
        line = f"{verb} {event.resource.plural}/{obj['metadata']['name']}"
        self._digest.update(json.dumps(obj, sort_keys=True).encode())
        if event.resource not in _UNRECORDED:
            changes = _changes(event.before or {}, event.after or {})
            self.record(process.name if process else "-", f"{line} {changes}")

    @contextlib.contextmanager
    def recording_logs(self) -> Iterator[None]:
        """Add the log lines of all processes."""
        before = structlog.get_config()
        structlog.configure(processors=[self._record_log], cache_logger_on_first_use=False)
        try:
            yield
        finally:
            structlog.configure(**before)

    def _record_log(self, logger: Any, method: str, entry: Any) -> Any:
        process = CURRENT.get()
        who = process.name if process else "-"
        if process is not None and process.killed:
            raise structlog.DropEvent
        entry = dict(entry)
        event = entry.pop("event", "")
        if error := entry.pop("exc_info", None):
            entry["error"] = repr(error)
        text = " ".join(f"{name}={value}" for name, value in entry.items())
        self.record(who, f"[{method}] {event} {text}")
        if event.startswith(ENDINGS):
            self.endings.append(f"{who}: {event} {text}")
        if event.startswith(ALARMS):
            self.alarms.append(f"{who}: {event} {text}")
        raise structlog.DropEvent


def _changes(before: Any, after: Any) -> str:
    """The differences, shortened."""
    found = [
        f"{path}: {_short(old)} -> {_short(new)}"
        for path, old, new in _differences("", before, after)
        if not path.endswith((".resourceVersion", ".managedFields"))
    ]
    text = "; ".join(found)
    return text if len(text) < 700 else text[:700] + "…"


def _differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from _differences(f"{path}.{name}", before.get(name), after.get(name))
    elif before != after:
        yield path, before, after


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 160 else text[:160] + "…"
