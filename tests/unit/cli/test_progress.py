"""Progress is a live line on a terminal, and plain lines everywhere else."""

import os
import pty
import re
import subprocess
import sys

import pytest

from dray_cli.progress import StepProgress, WorkProgress

STEPS = """
from dray_cli.progress import StepProgress
with StepProgress() as say:
    say("starting a")
    say("ready: a (1.0 s)")
    say("starting b")
say("ended: b")
"""
WORK = """
from dray_cli.progress import WorkProgress
with WorkProgress() as show:
    show("3 facts", 0.5)
    show("4 facts", 1.0)
"""


def on_terminal(script: str, **environment: str) -> str:
    """What a script writes to a terminal, without what the terminal removes again."""
    parent, child = pty.openpty()
    where = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=child, env=where)
    os.close(child)
    written = b""
    while data := _read(parent):
        written += data
    os.close(parent)
    assert process.wait() == 0
    return written.decode()


def _read(parent: int) -> bytes:
    try:
        return os.read(parent, 65536)
    except OSError:  # Linux' end of a terminal
        return b""


def test_in_a_pipe_each_step_is_a_line_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with StepProgress() as say:
        say("starting a")
        say("ready: a (1.0 s)")

    assert capsys.readouterr().err == "   0.0 s  starting a\n   0.0 s  ready: a (1.0 s)\n"


def test_on_a_terminal_done_steps_stay_and_the_live_line_goes() -> None:
    written = on_terminal(STEPS)

    assert re.search(r" s  ready: a \(1\.0 s\)", written)
    assert "starting b" in written
    assert written.rstrip().endswith(" s  ended: b")
    assert "\x1b[2K" in written  # lines that are removed again


def test_a_terminal_without_colour_gets_none() -> None:
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", on_terminal(STEPS, NO_COLOR="1"))


def test_a_terminal_that_can_do_nothing_is_like_a_pipe() -> None:
    assert "\x1b" not in on_terminal(STEPS, TERM="dumb")


def test_work_with_a_known_end_has_a_bar_on_a_terminal() -> None:
    written = on_terminal(WORK)

    assert "━" in written
    assert "4 facts" in written


def test_in_a_pipe_work_gets_a_line_every_five_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("dray_cli.progress.time.monotonic", lambda: now_s[0])
    with WorkProgress() as show:
        show("1 fact")
        now_s[0] += 5.1
        show("2 facts")
        show("3 facts")

    assert capsys.readouterr().err == "   5.1 s  2 facts\n"
