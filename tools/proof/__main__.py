"""``python -m tools.proof`` (``make proof``): run all parts at full size, and write a report.

A command that passed on the same files is not run again, so a stopped run continues where it ended.
A command that failed is run again, and the report says so.

Exit codes: 0 all chosen parts hold, 1 one does not, 2 wrong usage, 3 a part lacks something that it
needs, 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import datetime
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.machine import machine
from dray.api.errors import DrayError, PermanentError
from dray_sandbox.golang.command import Ticker
from tools.command import run
from tools.proof.parts import NAMES, OPENB_NODES, ProofPart, parts
from tools.proof.report import EXIT_CODES, ProofReport, as_json, as_markdown
from tools.proof.results import Result, Results, last_words
from tools.proof.tree import Tree, read_tree

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / ".cache" / "dray" / "proof"
_LONGEST_DETAIL: Final = 60


class Proof:
    """All parts, and their known results for the current files."""

    def __init__(self, known: Sequence[ProofPart]) -> None:
        self._parts = known
        self._tree: Tree = read_tree(ROOT)
        self._folder = KEPT / self._tree.hash[:12]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._results = Results(self._folder / "results.jsonl")

    def report(self) -> ProofReport:
        """The results so far."""
        return ProofReport(self._tree, machine(), self._parts, self._results.read())

    def run(self, names: Sequence[str]) -> None:
        """Run each command of the named parts that has not passed yet.

        Raises:
            PermanentError: the files were changed meanwhile.
        """
        commands = [
            (command, f"{part.name}-{number}")
            for part in self._parts
            if part.name in names
            for number, command in enumerate(part.commands, 1)
        ]
        for number, (command, name) in enumerate(commands, 1):
            place = f"[{number} of {len(commands)}]"
            runs = self.report().runs(command)
            if runs and runs[-1].exit_code == 0:
                _say(f"{place} {command}: passed before, at {runs[-1].ended_at}")
                continue
            result = _run(command, self._folder / f"{name}.{len(runs) + 1}.log", place)
            if read_tree(ROOT).hash != self._tree.hash:
                raise PermanentError(
                    f"files were changed while `{command}` ran, so nothing is known of them before "
                    "or after: run it again, and change nothing until it has ended"
                )
            self._results.add(result)
            self.write()

    def write(self) -> Path:
        """Write the report; returns the path of its Markdown file."""
        report, path = self.report(), self._folder / "report.md"
        path.write_text(as_markdown(report), "utf-8")
        encoded = msgspec.json.format(msgspec.json.encode(as_json(report)))
        path.with_suffix(".json").write_bytes(encoded + b"\n")
        return path


def main() -> int:
    """Prove the parts that the command line chooses."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    names: list[str] = arguments.parts
    _forget_make()
    try:
        proof = Proof(parts(arguments.openb))
        proof.run(names)
        path = proof.write()
    except DrayError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("stopped; the same command goes on from here")
        return 128 + signal.SIGINT
    report = proof.report()
    for part in report.parts:
        if part.name in names:
            _say(f"{part.name}: {report.state(part)}")
    _say(f"the report is {path}, and report.json next to it")
    return EXIT_CODES[report.worst(names)]


def _run(command: str, log: Path, place: str) -> Result:
    _say(f"{place} {command}")
    ticker = Ticker(_say, place, lambda: f": {_last_line(log)}")
    ended = run(shlex.split(command), log, tick=ticker.tick)
    says = last_words(log)
    outcome = "passed" if ended.exit_code == 0 else f"FAILED, see {log}"
    _say(f"{place} {outcome} ({ended.wall_s:.0f} s, CPU {ended.cpu_s:.0f} s): {says}")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Result(
        command=command,
        exit_code=ended.exit_code,
        wall_s=round(ended.wall_s, 1),
        cpu_s=round(ended.cpu_s, 1),
        ended_at=now,
        says=says,
        log=str(log.relative_to(ROOT)),
    )


def _last_line(log: Path) -> str:
    return log.read_text("utf-8", errors="replace").rstrip().rpartition("\n")[2][-_LONGEST_DETAIL:]


def _forget_make() -> None:
    """Drop other variables of `make proof`: ``TESTS=…`` would reduce what is proved."""
    for word in os.environ.pop("MAKEFLAGS", "").split():
        os.environ.pop(word.partition("=")[0], None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make proof", description="Run all proofs at full size.")
    parser.add_argument("--parts", type=_names, default=list(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--openb", type=_openb, help="the folder with openb's files")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: known are {', '.join(NAMES)}")
    return names


def _openb(text: str) -> Path:
    if not (path := Path(text).resolve() / OPENB_NODES).is_file():
        raise argparse.ArgumentTypeError(
            f"there is no file {path}: docs/user-guide/simulate.md says where it comes from"
        )
    return path.parent


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
