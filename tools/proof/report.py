"""The report of a proof, as Markdown and as JSON. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tools.proof.parts import ProofPart
from tools.proof.results import Result
from tools.proof.tree import Tree

State = Literal["FAILED", "not run to the end", "not run: give OPENB=FOLDER", "holds"]
EXIT_CODES: Final[dict[State, int]] = {
    "FAILED": 1,
    "not run to the end": 1,
    "not run: give OPENB=FOLDER": 3,
    "holds": 0,
}
"""Worst first."""


@dataclass(frozen=True, slots=True)
class ProofReport:
    """All that is known about a tree."""

    tree: Tree
    machine: str
    parts: Sequence[ProofPart]
    """All parts."""
    results: Sequence[Result]
    """Oldest first."""

    def runs(self, command: str) -> list[Result]:
        """All runs of a command, oldest first: the last one counts."""
        return [one for one in self.results if one.command == command]

    def ended(self, part: ProofPart) -> list[Result]:
        """The last run of each command that has run."""
        return [runs[-1] for command in part.commands if (runs := self.runs(command))]

    def state(self, part: ProofPart) -> State:
        """The state of the part."""
        if not part.commands:
            return "not run: give OPENB=FOLDER"
        ended = self.ended(part)
        if any(one.exit_code for one in ended):
            return "FAILED"
        return "holds" if len(ended) == len(part.commands) else "not run to the end"

    def worst(self, names: Sequence[str] | None = None) -> State:
        """The worst state of the named parts, or of all."""
        states = {self.state(part) for part in self.parts if names is None or part.name in names}
        return next(state for state in EXIT_CODES if state in states)


def as_markdown(report: ProofReport) -> str:
    """A table of the parts, and below it one of the commands of each."""
    tree = report.tree
    changes = "" if tree.is_committed else ", with changes that are not committed"
    lines = [
        f"# Proof of {tree.commit[:12]}: {report.worst()}",
        "",
        f"- commit: {tree.commit}{changes}",
        f"- tree: {tree.hash}",
        f"- machine: {report.machine}",
        "",
        "| part | result | commands | wall | CPU |",
        "|---|---|---|---|---|",
    ]
    for part in report.parts:
        ended = report.ended(part)
        lines.append(
            f"| {part.name}: {part.title} | {report.state(part)} | "
            f"{len(ended)} of {len(part.commands)} | "
            f"{_time(sum(one.wall_s for one in ended))} | "
            f"{_time(sum(one.cpu_s for one in ended))} |"
        )
    for part in report.parts:
        if ended := report.ended(part):
            lines += ["", f"## {part.name}", "", "| command | result | wall | CPU | ended | says |"]
            lines += ["|---|---|---|---|---|---|", *(_row(report, one) for one in ended)]
    return "\n".join(lines) + "\n"


def as_json(report: ProofReport) -> dict[str, Any]:
    """The same for programs, with every run of every command."""
    return {
        "commit": report.tree.commit,
        "is_committed": report.tree.is_committed,
        "tree": report.tree.hash,
        "machine": report.machine,
        "result": report.worst(),
        "parts": [
            {
                "name": part.name,
                "title": part.title,
                "result": report.state(part),
                "commands": [
                    {"command": command, "runs": report.runs(command)} for command in part.commands
                ],
            }
            for part in report.parts
        ],
    }


def _row(report: ProofReport, one: Result) -> str:
    result = f"FAILED with exit code {one.exit_code}, see {one.log}" if one.exit_code else "passed"
    failed = [before.log for before in report.runs(one.command)[:-1] if before.exit_code]
    if failed:
        result += f"; had FAILED before, see {', '.join(failed)}"
    says = one.says.replace("|", "\\|")
    return (
        f"| `{one.command}` | {result} | {_time(one.wall_s)} | {_time(one.cpu_s)} | "
        f"{one.ended_at} | {says} |"
    )


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
