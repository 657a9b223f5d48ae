"""`.ci/run`: what it runs, what it prints of it, and when it fails."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.ci import __main__ as runner
from tools.ci.report import Row, minutes, table
from tools.ci.stages import BUILD, LIMIT_S, SETUP, STAGES, TOTAL_S, CiStage
from tools.command import Ended

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = [stage.command for stage in STAGES]
Ci = Callable[..., int]


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ci:
    """Runs these commands as the stages after `make setup`; returns the exit code."""

    def start(*commands: str, build: str = "true", setup_s: float = 2.0) -> int:
        monkeypatch.setattr(runner, "STAGES", (SETUP, *(CiStage(one, 60) for one in commands)))
        monkeypatch.setattr(runner, "BUILD", CiStage(build, 60))
        monkeypatch.setattr(runner, "BUILD_LOG", tmp_path / "ci" / "build.log")
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(sys, "argv", ["ci", "--setup-s", str(setup_s)])
        return runner.main()

    return start


def test_all_budgets_together_stay_within_the_total() -> None:
    assert sum(stage.budget_s for stage in STAGES) <= TOTAL_S


def test_it_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.search(r"^\$ make test +# every test that needs no Go$", readme, re.MULTILINE)
    assert COMMANDS[:3] == ["make setup", "make check", "make test"]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "\nmake setup\n" in script
    assert "python -m tools.ci" in script


def test_every_stage_is_a_target_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    assert {command.split()[1] for command in [*COMMANDS, BUILD.command]} <= targets
    assert all(command.startswith("make ") for command in COMMANDS)


def test_it_runs_every_part_of_the_conformance_on_the_default_minor() -> None:
    (conformance,) = [command.split() for command in COMMANDS if "conformance" in command]
    assert "REAL_ONLY=1" in conformance
    assert not any(word.startswith(("PARTS=", "K8S=")) for word in conformance)


def test_the_table_shows_each_time_with_its_budget() -> None:
    rows = [
        Row(SETUP, Ended(0, 81.2, 37.0)),
        Row(CiStage("make a-test", 60), Ended(0, 75.0, 120.4)),
        Row(CiStage("make b-test", 60), Ended(2, 5.0, 1.0)),
        Row(BUILD, Ended(0, 400.0, 700.0)),
    ]
    lines = table(rows, 161.4).splitlines()
    assert lines[1].split() == ["make", "setup", "81", "s", f"{SETUP.budget_s}", "s", "37", "s"]
    assert lines[2].endswith("75 s    60 s   120 s  OVER ITS BUDGET by 15 s")
    assert lines[3].endswith("FAILED with exit code 2")
    assert lines[4].startswith("make build, in parallel with the others")
    assert lines[5].startswith("all stages took 2 min 41 s; their budgets are ")


def test_minutes_are_shown_as_people_say_them() -> None:
    assert [minutes(s) for s in (0, 59.4, 60, 245)] == ["0 s", "59 s", "1 min", "4 min 5 s"]


def test_all_stages_run_in_their_order(ci: Ci, capfd: pytest.CaptureFixture[str]) -> None:
    assert ci("echo one", "echo two") == 0
    printed = capfd.readouterr().out
    assert printed.index("\none\n") < printed.index("\ntwo\n") < printed.index("all stages took")


def test_the_first_stage_that_fails_is_the_last(ci: Ci, capfd: pytest.CaptureFixture[str]) -> None:
    assert ci("echo one", "false", "echo two") == 1
    printed = capfd.readouterr().out
    assert "FAILED with exit code 1" in printed
    assert "\ntwo\n" not in printed


class FailedBuild:
    """A build that has failed already."""

    def __init__(self, words: list[str], log: Path, *, niceness: int) -> None:
        log.write_text("Go modules can't be downloaded\n")

    def poll(self) -> Ended:
        return Ended(2, 4.0, 1.0)


def test_a_build_that_fails_fails_the_run_and_shows_why(
    ci: Ci, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "Command", FailedBuild)
    assert ci("echo one", "echo two") == 1
    printed = capfd.readouterr().out
    assert "Go modules can't be downloaded" in printed
    assert "FAILED with exit code 2" in printed
    assert "\none\n" in printed
    assert "\ntwo\n" not in printed


def test_a_build_that_still_runs_at_the_end_is_stopped(
    ci: Ci, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ci("true", build="sleep 600") == 0
    assert "sleep 600" not in capfd.readouterr().out


def test_a_stage_over_its_budget_is_printed_and_fails_nothing(
    ci: Ci, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ci("true", setup_s=SETUP.budget_s + 5.0) == 0
    assert "OVER ITS BUDGET by 5 s" in capfd.readouterr().out


def test_all_stages_together_must_stay_within_the_limit(
    ci: Ci, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ci("true", setup_s=LIMIT_S + 1.0) == 1
    assert f"error: all stages together may take {minutes(LIMIT_S)}" in capfd.readouterr().out


def test_the_cpu_time_of_make_setup_counts() -> None:
    """`.ci/run` runs it before there is a Python for the runner, and then becomes the runner."""
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    used = "used = resource.getrusage(resource.RUSAGE_CHILDREN)"
    shown = f"import resource; {used}; print(used.ru_utime + used.ru_stime)"
    script = f'"{sys.executable}" -c "$1"\nexec "{sys.executable}" -c "$2"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", busy, shown], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) >= 0.3


def test_a_shell_that_sets_pythonpath_does_not_replace_what_is_tested(tmp_path: Path) -> None:
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "run", script)
    (tmp_path / "Makefile").write_text("setup:\n\t@echo setup sees: $$PYTHONPATH.\n")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "the stages see: $PYTHONPATH."\n')
    python.chmod(0o755)
    # Without the flags of a make that runs this test: with them the inner make prints its folder.
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        [script], env=shell | {"PYTHONPATH": "/other"}, capture_output=True, text=True
    )
    assert "setup sees: .\nthe stages see: .\n" in done.stdout, done.stderr
