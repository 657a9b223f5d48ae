"""Ask both programs the same questions."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dray.api.errors import PermanentError

Answers = dict[str, dict[str, Any]]
_PROGRESS_EVERY_S = 10.0
_DRAY = (sys.executable, "-m", "dray_cli")
DRAY_PROCESSES = 2
REPEATS = 200


class ProgramFailedError(PermanentError):
    """One of the programs ended before it had answered everything."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The two commands that answer the same JSON Lines."""

    oracle: tuple[str, ...]
    dray: tuple[str, ...]


def about_selectors(oracle: Path) -> Programs:
    """Who is asked what a selector says to a device."""
    return Programs((str(oracle),), (*_DRAY, "cel", "eval", "--batch"))


def about_allocations(oracle: Path) -> Programs:
    """Who is asked which devices claims get."""
    dray = (*_DRAY, "allocate", "--batch", "--mode", "compatible")
    return Programs((str(oracle), "-allocate"), dray)


def ask_both(
    programs: Programs, questions: Sequence[dict[str, Any]], progress: Callable[[str], None]
) -> tuple[Answers, Answers]:
    """The oracle's answers and dray's, by id.

    dray reads in DRAY_PROCESSES processes; all run at once, with files for their output, so that
    nobody waits for a reader.

    Raises:
        ProgramFailedError: one of them failed.
    """
    lines = [json.dumps(question) for question in questions]
    dray = list(programs.dray)
    jobs = {f"dray {n + 1}": (dray, lines[n::DRAY_PROCESSES]) for n in range(DRAY_PROCESSES)}
    with tempfile.TemporaryDirectory() as folder:
        running = {
            name: _Job(name, command, its, Path(folder))
            for name, (command, its) in ({"oracle": (list(programs.oracle), lines)} | jobs).items()
        }
        _wait(list(running.values()), progress)
        answers = {name: job.answers() for name, job in running.items()}
    return answers.pop("oracle"), {k: v for part in answers.values() for k, v in part.items()}


def ask_oracle(programs: Programs, questions: Sequence[dict[str, Any]]) -> Answers:
    """The oracle's answers alone, by id."""
    return _answered(programs.oracle, questions)


def observe(programs: Programs, questions: Sequence[dict[str, Any]]) -> Answers:
    """The oracle's answers with every outcome that REPEATS evaluations have, by id.

    Go visits a map in a random order, so a selector that stops early, or fails at one entry, has
    several right answers.
    """
    return _answered((*programs.oracle, "-repeat", str(REPEATS), "-timeout", "60s"), questions)


def _answered(command: Sequence[str], questions: Sequence[dict[str, Any]]) -> Answers:
    lines = "\n".join(json.dumps(question) for question in questions)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["id"]: answer for answer in found}


class _Job:
    """One process, its questions in one file and its answers in another."""

    def __init__(self, name: str, command: list[str], lines: list[str], folder: Path) -> None:
        self.name = name
        self.asked = len(lines)
        self._answers = folder / f"{name}.out"
        questions = folder / f"{name}.in"
        questions.write_text("\n".join(lines) + "\n", "utf-8")
        with questions.open("rb") as source, self._answers.open("wb") as sink:
            self.process = subprocess.Popen(command, stdin=source, stdout=sink)

    def answered(self) -> int:
        """How many lines are there; they may be behind by a buffer."""
        return self._answers.read_bytes().count(b"\n")

    def answers(self) -> Answers:
        found = [json.loads(line) for line in self._answers.read_text("utf-8").splitlines()]
        if self.process.returncode != 0 or len(found) != self.asked:
            raise ProgramFailedError(
                f"{self.name} answered {len(found)} of {self.asked} questions and ended with exit "
                f"code {self.process.returncode}; its standard error is above"
            )
        return {answer["id"]: answer for answer in found}


def _wait(jobs: Sequence[_Job], progress: Callable[[str], None]) -> None:
    stated = time.monotonic()
    try:
        while any(job.process.poll() is None for job in jobs):
            if time.monotonic() - stated >= _PROGRESS_EVERY_S:
                stated = time.monotonic()
                progress(", ".join(f"{job.name} {job.answered()}/{job.asked}" for job in jobs))
            time.sleep(0.1)
    finally:
        for job in jobs:
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()
