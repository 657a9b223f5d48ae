"""``stack.json``: other programs use it to find a running local stack."""

import os
import signal
import time
from pathlib import Path

import msgspec

from dray.api.errors import PermanentError
from dray_sandbox.paths import stack_directory
from dray_sandbox.secret_files import write_secret

DEFAULT_NAME = "default"
NAME_VARIABLE = "DRAY_STACK"
"""The stack that a command without a flag uses."""


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One process; the start time distinguishes it from a later one with the same id."""

    name: str
    pid: int
    started: str
    """Start time in the kernel's ticks; empty if the system has none."""
    log: str = ""
    health_url: str = ""
    """The URL of its readiness page, or else its address; empty if it has neither."""
    restarts: int = 0
    """How many times the supervisor restarted it."""


class StackFile(msgspec.Struct, frozen=True, kw_only=True):
    """A running stack's parts, addresses and credentials. Contains passwords."""

    name: str
    directory: str
    control_plane: str
    kubelet: str = "simulated"
    """What runs the nodes: ``simulated`` or ``real``."""
    server: str
    """URL of the API server."""
    kubeconfig: str
    """The administrator's."""
    kubeconfigs: dict[str, str]
    """By user."""
    nats_url: str
    nats_passwords: dict[str, str]
    """By role, which is the user name; ``admin`` has all rights."""
    webhook_url: str = ""
    audit_log: str = ""
    """Path of the API server's audit log; empty on the sandbox."""
    nodes: tuple[str, ...] = ()
    restarts: bool = False
    """Whether the supervisor restarts a process that ended by itself; otherwise it ends all."""
    supervisor: ProcessRecord
    """The process that started the others and stops them on SIGTERM."""
    processes: tuple[ProcessRecord, ...] = ()
    created_unix_s: float = 0.0

    @property
    def running(self) -> bool:
        """Whether its supervisor runs; without it, every other process has ended."""
        return is_alive(self.supervisor)


class StackRunsError(PermanentError):
    """A stack of that name is already running."""

    def __init__(self, stack: StackFile) -> None:
        name = stack.name
        super().__init__(
            f"a stack named {name!r} is already running: use it with\n"
            f"export KUBECONFIG={stack.kubeconfig}\n"
            f"or stop it with `dray down --stack {name}`, or choose another name"
        )


def process_record(
    name: str, pid: int, log: str = "", health_url: str = "", restarts: int = 0
) -> ProcessRecord:
    """The record of a running process."""
    return ProcessRecord(
        name=name,
        pid=pid,
        started=_start_time(pid),
        log=log,
        health_url=health_url,
        restarts=restarts,
    )


def is_alive(record: ProcessRecord) -> bool:
    """Whether the recorded process runs, not another one with the same id."""
    try:
        os.kill(record.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return _start_time(record.pid) == record.started


def path_of(name: str) -> Path:
    """The path of the stack's file."""
    return stack_directory(name) / "stack.json"


def write_stack_file(stack: StackFile) -> Path:
    """Write it atomically, readable by its owner only."""
    path = path_of(stack.name)
    temporary = path.with_suffix(".new")
    write_secret(temporary, msgspec.json.format(msgspec.json.encode(stack), indent=2) + b"\n")
    temporary.replace(path)
    return path


def read_stack_file(name: str | None = None) -> StackFile | None:
    """The running stack of that name (else of ``$DRAY_STACK``, else the default), or None.

    The default is the stack ``default``, or the only one that runs. A file whose supervisor has
    ended is stale and counts as absent.
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
    """The running local stacks of this checkout."""
    folder = stack_directory(DEFAULT_NAME).parent
    names = sorted(path.parent.name for path in folder.glob("*/stack.json"))
    return tuple(stack for name in names if (stack := read_stack_file(name)) is not None)


def remove_stack_file(name: str) -> None:
    """Remove the stack's file if there is one."""
    path_of(name).unlink(missing_ok=True)


def kill_process(record: ProcessRecord) -> bool:
    """SIGKILL one process; returns whether it was running."""
    ran = is_alive(record)
    _send(record, signal.SIGKILL)
    return ran


def end_stack(stack: StackFile, *, within_s: float = 60.0) -> bool:
    """Stop the stack through its supervisor; returns whether every process has ended.

    Processes that still run after ``within_s`` are killed.
    """
    _send(stack.supervisor, signal.SIGTERM)
    processes = (stack.supervisor, *stack.processes)
    if _ended(processes, within_s):
        return True
    for record in processes:
        _send(record, signal.SIGKILL)
    return _ended(processes, 10.0)


def _send(record: ProcessRecord, number: signal.Signals) -> None:
    if is_alive(record):
        try:
            os.kill(record.pid, number)
        except ProcessLookupError:
            return


def _ended(records: tuple[ProcessRecord, ...], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_alive(record) for record in records):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat; the command's name before it may contain spaces and brackets.

    A zombie has ended, so it has no start time here.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
