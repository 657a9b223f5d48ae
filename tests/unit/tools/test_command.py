"""Commands of the tools: how they end, what they took, and that nothing is left of them."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tools.command import Command, run

BUSY = "import time\nwhile time.process_time() < 0.3: pass"
"""Uses 0.3 s of CPU time."""
CHILD_OF_A_CHILD = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
    "print(child.pid, flush=True)\n"
    "child.wait()"
)
DEAF = (
    "import signal\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "print('deaf', flush=True)\n"
    "while True: signal.pause()"
)


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def printed(log: Path) -> str:
    """The first line of the log, once it is there."""
    deadline = time.monotonic() + 30.0
    while "\n" not in (text := log.read_text()):
        assert time.monotonic() < deadline, "it printed nothing"
        time.sleep(0.01)
    return text.strip()


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("source", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_a_command_ends_with_its_exit_code_or_signal(source: str, code: int) -> None:
    assert run(python(source)).exit_code == code


def test_cpu_time_of_descendants_counts() -> None:
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    ended = run(python(inner))
    assert ended.cpu_s >= 0.3
    assert ended.wall_s > 0


def test_a_log_holds_both_streams(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(["sh", "-c", "echo out; echo err >&2"], log)
    assert log.read_text() == "out\nerr\n"


def test_a_command_with_a_low_priority_gives_it_to_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # The priority is lowered after the start: the command waits for it.
    source = (
        "import os, time\n"
        "while os.nice(0) != 19: time.sleep(0.01)\n"
        "os.execvp('sh', ['sh', '-c', 'nice; true'])"
    )
    command = Command(python(source), log, niceness=19)
    assert printed(log) == "19"
    command.stop()


def test_stopping_ends_the_whole_group(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = Command(python(CHILD_OF_A_CHILD), log)
    grandchild = int(printed(log))
    command.stop()
    ended = command.poll()
    assert ended is not None
    assert ended.exit_code != 0
    assert is_gone(grandchild)


def test_what_ignores_an_interrupt_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.command._STOP_WITHIN_S", 0.1)
    log = tmp_path / "log"
    command = Command(python(DEAF), log)
    assert printed(log) == "deaf"
    command.stop()
    ended = command.poll()
    assert ended is not None
    assert ended.exit_code == -signal.SIGKILL


def test_a_run_that_is_interrupted_leaves_no_process(tmp_path: Path) -> None:
    log, grandchildren = tmp_path / "log", []

    def interrupted() -> None:
        grandchildren.append(int(printed(log)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(CHILD_OF_A_CHILD), log, tick=interrupted)
    assert is_gone(grandchildren[0])
