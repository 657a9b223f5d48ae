"""``stack.json``: how other programs find a running local stack."""

import os
import signal
import time
from pathlib import Path

import msgspec

from dray_sandbox.certificates import write_secret
from dray_sandbox.paths import stack_directory

DEFAULT_NAME = "default"
NAME_VARIABLE = "DRAY_STACK"
"""Which stack the commands mean, where no flag says it."""


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One process, told apart from a later one of the same id by its start time."""

    name: str
    pid: int
    started: str
    """Start time in the kernel's ticks; empty where the system does not tell it."""
    log: str = ""


class StackFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a running stack is made of, and every way into it. Contains passwords."""

    name: str
    directory: str
    control_plane: str
    server: str
    """URL of the API server."""
    kubeconfig: str
    """Of the administrator."""
    kubeconfigs: dict[str, str]
    """By user."""
    nats_url: str
    nats_passwords: dict[str, str]
    """By role; user names are the roles, and ``admin`` may do everything."""
    webhook_url: str = ""
    audit_log: str = ""
    """Every request to the API server and its answer; empty on the sandbox."""
    nodes: tuple[str, ...] = ()
    supervisor: ProcessRecord
    """The process that started the others and ends them when it is told to end."""
    processes: tuple[ProcessRecord, ...] = ()
    created_unix_s: float = 0.0

    @property
    def running(self) -> bool:
        """Whether its supervisor still lives; without it every process has ended."""
        return is_alive(self.supervisor)


def process_record(name: str, pid: int, log: str = "") -> ProcessRecord:
    """The record of a live process."""
    return ProcessRecord(name=name, pid=pid, started=_start_time(pid), log=log)


def is_alive(record: ProcessRecord) -> bool:
    """Whether the recorded process, and not another of the same id, runs."""
    try:
        os.kill(record.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return _start_time(record.pid) == record.started


def path_of(name: str) -> Path:
    """Where the stack of that name keeps its file."""
    return stack_directory(name) / "stack.json"


def write_stack_file(stack: StackFile) -> Path:
    """Write it so that only its owner can read it, whole or not at all."""
    path = path_of(stack.name)
    temporary = path.with_suffix(".new")
    write_secret(temporary, msgspec.json.format(msgspec.json.encode(stack), indent=2) + b"\n")
    temporary.replace(path)
    return path


def read_stack_file(name: str | None = None) -> StackFile | None:
    """The running stack of that name (else ``$DRAY_STACK``, else the one to be meant), or None.

    Without any name it is ``default``, or the only one that runs. A file whose supervisor is
    gone is stale: nothing it names runs, and None is returned.
    """
    if chosen := name or os.environ.get(NAME_VARIABLE):
        return _read(path_of(chosen))
    if (default := _read(path_of(DEFAULT_NAME))) is not None:
        return default
    files = sorted(path_of(DEFAULT_NAME).parent.parent.glob("*/stack.json"))
    running = [stack for file in files if (stack := _read(file)) is not None]
    return running[0] if len(running) == 1 else None


def _read(path: Path) -> StackFile | None:
    try:
        stack = msgspec.json.decode(path.read_bytes(), type=StackFile)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return stack if stack.running else None


def running_stacks() -> tuple[StackFile, ...]:
    """Every local stack of this checkout that runs."""
    folder = stack_directory(DEFAULT_NAME).parent
    names = sorted(path.parent.name for path in folder.glob("*/stack.json"))
    return tuple(stack for name in names if (stack := read_stack_file(name)) is not None)


def remove_stack_file(name: str) -> None:
    """Forget the stack; absent is fine."""
    path_of(name).unlink(missing_ok=True)


def end_stack(stack: StackFile, *, within_s: float = 60.0) -> bool:
    """Tell the supervisor to end the stack and wait; whether everything is gone.

    What still lives after ``within_s`` is killed.
    """
    _send(stack.supervisor, signal.SIGTERM)
    everything = (stack.supervisor, *stack.processes)
    if _gone(everything, within_s):
        return True
    for record in everything:
        _send(record, signal.SIGKILL)
    return _gone(everything, 10.0)


def _send(record: ProcessRecord, number: signal.Signals) -> None:
    if is_alive(record):
        try:
            os.kill(record.pid, number)
        except ProcessLookupError:
            return


def _gone(records: tuple[ProcessRecord, ...], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_alive(record) for record in records):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; the command's name before it may contain anything.

    A zombie has ended: it has no start time here.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
