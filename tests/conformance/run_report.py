"""What ``make conformance`` shows of a minor of Kubernetes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from run_results import Result


@dataclass(frozen=True, slots=True)
class MinorReport:
    """Everything that was run on one version."""

    version: str
    """Such as 1.36.3; the minor where it could not be built."""
    build_s: float
    results: tuple[Result, ...]
    cannot_run: str = ""
    """Why nothing could run: there is no control plane."""

    @property
    def took_s(self) -> float:
        """Seconds, the build included."""
        return self.build_s + sum(result.took_s for result in self.results)

    @property
    def exit_code(self) -> int:
        """0: all holds; 1: something differs; 3: something can't run on this machine."""
        if any(result.differences for result in self.results):
            return 1
        return 3 if self.cannot_run or any(one.cannot_run for one in self.results) else 0


def as_text(reports: Sequence[MinorReport]) -> str:
    """A table for each version, what differed below it, and a line that sums up."""
    return "\n\n".join(_minor(report) for report in reports)


def as_json(reports: Sequence[MinorReport]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "versions": [
            {
                "version": report.version,
                "exit_code": report.exit_code,
                "cannot_run": report.cannot_run,
                "build_s": round(report.build_s, 1),
                "took_s": round(report.took_s, 1),
                "parts": [result.as_json() for result in report.results],
            }
            for report in reports
        ]
    }


def summary(result: Result) -> str:
    """The outcome of a part in a few words."""
    if result.cannot_run:
        return f"can't run here: {result.cannot_run}"
    stated = [result.says] if result.says else [f"{result.passed} passed"]
    if skipped := sum(count for _, count in result.not_on):
        stated.append(f"{skipped} not on this version")
    if result.differences:
        stated.append(f"{result.different} DIFFERENT")
    return ", ".join(stated)


def _minor(report: MinorReport) -> str:
    lines = [f"Kubernetes {report.version}"]
    if report.cannot_run:
        lines.append(f"  can't run here: {report.cannot_run}")
    for result in report.results:
        lines.append(f"  {result.part:11}{result.took_s:>7.0f} s  {summary(result)}")
        lines += [f"    {count} {reason}" for reason, count in result.not_on]
        lines += [f"    differs: {difference}" for difference in result.differences]
        if result.differences:
            lines.append(f"    all of it is in {result.log}")
    outcome = {0: "all holds", 1: "something differs", 3: "not everything can run here"}
    stated = outcome[report.exit_code] if report.results or report.cannot_run else "no part ended"
    minutes, seconds = divmod(round(report.took_s), 60)
    lines.append(f"  {stated}; {minutes} min {seconds} s")
    return "\n".join(lines)
