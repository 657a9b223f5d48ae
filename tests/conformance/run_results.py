"""What came of a part: its tests as pytest reported them, or the outcome of its command."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

NOT_ON: Final = "not on "
"""How a test begins its reason for being meaningless on what this server keeps; it may not be so
on the default minor, where everything that is left out elsewhere has to run."""
CANNOT_RUN: Final = 3
_NO_TESTS: Final = 5
"""pytest's exit code where nothing was collected."""
_FIRST_LINE: Final = 160


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one part on one minor."""

    part: str
    took_s: float
    passed: int = 0
    not_on: tuple[tuple[str, int], ...] = ()
    """Why tests are meaningless here, with how many each reason has."""
    differences: tuple[str, ...] = ()
    """What failed or was skipped otherwise, and why."""
    different: int = 0
    """How many tests that was."""
    says: str = ""
    """The last line of a command."""
    cannot_run: str = ""
    """Why it could not run on this machine."""
    log: str = ""

    @property
    def holds(self) -> bool:
        """Whether it ran, and nothing differed."""
        return not (self.differences or self.cannot_run)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "part": self.part,
            "holds": self.holds,
            "passed": self.passed,
            "not_on": dict(self.not_on),
            "differences": list(self.differences),
            "different": self.different,
            "says": self.says,
            "cannot_run": self.cannot_run,
            "took_s": round(self.took_s, 1),
            "log": self.log,
        }


@dataclass(slots=True)
class _Tests:
    """Counts while a report is read."""

    all_must_run: bool
    passed: int = 0
    not_on: dict[str, int] = field(default_factory=dict)
    different: dict[str, list[str]] = field(default_factory=dict)
    """Tests by what differed: a stand that does not start fails many of them."""

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"
            for why, names in self.different.items()
        )

    def take(self, case: ElementTree.Element) -> None:
        """Count one test, by the first thing that happened to it."""
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name', '')}"
        for kind in ("failure", "error"):
            if (found := case.find(kind)) is not None:
                self._differs(name, _first_line(found.get("message", kind)))
                return
        skipped = case.find("skipped")
        if skipped is None:
            self.passed += 1
            return
        reason = skipped.get("message", "")
        left_out = skipped.get("type") == "pytest.skip" and reason.startswith(NOT_ON)
        if left_out and not self.all_must_run:
            self.not_on[reason] = self.not_on.get(reason, 0) + 1
        else:
            self._differs(name, f"skipped: {_first_line(reason)}")

    def _differs(self, name: str, why: str) -> None:
        self.different.setdefault(why, []).append(name)


def of_tests(
    part: str, code: int, report: Path, took_s: float, log: Path, *, all_must_run: bool
) -> Result:
    """What pytest, ended with ``code``, wrote into its JUnit ``report``.

    With ``all_must_run`` any test that was left out is a difference, whatever its reason.
    """
    tests = _Tests(all_must_run)
    if report.exists():
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            tests.take(case)
    differences = tests.differences
    if code == _NO_TESTS:
        differences = ("there is no test of this part",)
    elif code != 0 and not differences:
        differences = (f"pytest ended with exit code {code}",)
    not_on = tuple(sorted(tests.not_on.items()))
    failed = sum(map(len, tests.different.values())) or len(differences)
    return Result(part, took_s, tests.passed, not_on, differences, failed, log=str(log))


def of_command(part: str, code: int, took_s: float, log: Path) -> Result:
    """What a command, ended with ``code``, left in its log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    if code == CANNOT_RUN:
        return Result(part, took_s, cannot_run=last, log=str(log))
    differences = () if code == 0 else (f"exit code {code}: {last}",)
    return Result(
        part,
        took_s,
        differences=differences,
        different=len(differences),
        says=last,
        log=str(log),
    )


def _first_line(text: str) -> str:
    line = re.sub(r"\s+", " ", text.strip().split("\n", 1)[0])
    return line if len(line) <= _FIRST_LINE else f"{line[: _FIRST_LINE - 1]}…"
