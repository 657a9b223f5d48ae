"""``make conformance``: is what dray says about Kubernetes true on Kubernetes?

Builds the control plane of each minor (once, into the user's cache), and runs the parts on it, one
after the other. Tests on the sandbox and on fakes run with the default minor only; on that one none
may be left out, so that what is left out on another is known to run.

Exit codes: 0 all holds, 1 something differs, 2 used wrongly, 3 it can't run here, and why.
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from pathlib import Path

from run_builds import BUILDS, chosen
from run_page import record
from run_parts import NAMES, PARTS, Part
from run_report import MinorReport, as_json, as_text, summary
from run_results import Result, of_command, of_tests

from dray.api.errors import DrayError
from dray_sandbox.controlplane.build import DEFAULT_MINOR, MINOR_VARIABLE, MINORS, build
from dray_sandbox.golang.command import Ticker, run

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
LOGS = ROOT / ".cache" / "dray" / "conformance"
INTERRUPTED = 130


def main() -> int:
    """Run what the command line asks for; the worst exit code of all minors, 1 before 3.

    130 where it was stopped (SIGINT, SIGTERM): what ran until then is shown, and recorded.
    """
    arguments = _arguments()
    reports: list[MinorReport] = []
    interrupted = False
    try:
        asyncio.run(_run(arguments, reports))
    except (KeyboardInterrupt, asyncio.CancelledError):
        interrupted = True
        _say("stopped; this ran until then:")
    if arguments.output == "json":
        print(json.dumps(as_json(reports), indent=2, ensure_ascii=False))
    else:
        print(as_text(reports))
    if arguments.record:
        record(reports)
    if interrupted:
        return INTERRUPTED
    codes = {report.exit_code for report in reports}
    return next(code for code in (1, 3, 0) if code in codes)


async def _run(arguments: argparse.Namespace, reports: list[MinorReport]) -> None:
    if (task := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    wanted = [part for part in PARTS if part.name in arguments.parts]
    for minor in arguments.k8s:
        began = time.monotonic()
        try:
            version = (await build(_say, minor)).version
        except (DrayError, OSError) as error:
            why = str(error).splitlines()[0]
            _say(f"{minor}: can't run here: {why}")
            reports.append(MinorReport(minor, time.monotonic() - began, (), why))
            continue
        built_s = time.monotonic() - began
        results: list[Result] = []
        try:
            for part in wanted:
                _say(f"{version} {part.name}: {part.title}")
                results.append(await _built_and_run(part, minor, arguments))
                _say(f"{version} {part.name}: {summary(results[-1])} ({results[-1].took_s:.0f} s)")
        finally:
            reports.append(MinorReport(version, built_s, tuple(results)))


async def _built_and_run(part: Part, minor: str, arguments: argparse.Namespace) -> Result:
    """Build what the part needs, outside its time-outs, then run it."""
    began = time.monotonic()
    try:
        for name in part.needs:
            await BUILDS[name](minor, _say)
    except (DrayError, OSError) as error:
        why = str(error).splitlines()[0]
        return Result(part.name, time.monotonic() - began, cannot_run=why)
    everything = minor == DEFAULT_MINOR and not arguments.real_only
    size = {"pairs": arguments.pairs, "cases": arguments.cases}.get(part.asks)
    return await _part(part, minor, everything, arguments.part_timeout_s, size)


async def _part(
    part: Part, minor: str, everything: bool, timeout_s: float, size: int | None = None
) -> Result:
    """Run one part in a process of its own, with all it prints in a file."""
    folder = LOGS / minor
    folder.mkdir(parents=True, exist_ok=True)
    log, report = folder / f"{part.name}.log", folder / f"{part.name}.xml"
    report.unlink(missing_ok=True)
    missing = [path for path in (*part.paths, *part.command[:1]) if not (TESTS / path).exists()]
    if missing:
        why = f"tests/{missing[0]} does not exist"
        return Result(part.name, 0.0, differences=(why,), different=1)
    command = _command(part, minor, size) if part.command else _pytest(part, report, everything)
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            ticker = Ticker(_say, f"  {part.name}", lambda: _last_percentage(log))
            code = await run(
                command, log, directory=ROOT, environment=_environment(minor), tick=ticker.tick
            )
    except TimeoutError:
        late = f"it did not end within {timeout_s:.0f} s"
        return Result(part.name, timeout_s, differences=(late,), different=1, log=str(log))
    took_s = time.monotonic() - began
    if part.command:
        return of_command(part.name, code, took_s, log)
    all_must_run = minor == DEFAULT_MINOR
    return of_tests(part.name, code, report, took_s, log, all_must_run=all_must_run)


def _pytest(part: Part, report: Path, everything: bool) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit2"]
    command += [f"--ignore={TESTS / path}" for path in part.without]
    return [
        *command,
        *([] if everything else ["-m", "real"]),
        *(str(TESTS / p) for p in part.paths),
    ]


def _command(part: Part, minor: str, size: int | None) -> list[str]:
    script, *arguments = part.command
    sized = [] if size is None else [f"--{part.asks}", str(size)]
    return [sys.executable, str(TESTS / script), "--k8s", minor, *arguments, *sized]


def _environment(minor: str) -> dict[str, str]:
    return {MINOR_VARIABLE: minor, "COLUMNS": str(shutil.get_terminal_size((100, 24)).columns)}


def _last_percentage(log: Path) -> str:
    """How far pytest is, as it says at the end of its lines."""
    if not log.exists():
        return ""
    found = log.read_text(errors="replace").rpartition("%]")[0].rpartition("[")[2].strip()
    return f", {found} %" if found.isdigit() else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make conformance",
        description="Prove on real Kubernetes what dray says about it.",
        epilog="Exit codes: 0 all holds, 1 something differs, 3 it can't run here, and why. "
        + "; ".join(f"{part.name}: {part.title}" for part in PARTS),
    )
    parser.add_argument(
        "--k8s",
        type=chosen(MINORS),
        default=[DEFAULT_MINOR],
        help=f"minors, as in 1.34,1.36, or all (default {DEFAULT_MINOR})",
    )
    parser.add_argument(
        "--parts", type=chosen(NAMES), default=list(NAMES), help=f"of {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--real-only", action="store_true", help="leave out what runs without a real control plane"
    )
    parser.add_argument("--pairs", type=int, help="of a selector and a device (default 20000)")
    parser.add_argument(
        "--cases", type=int, help="of an allocation (default 5000) and of a node fit (default 1500)"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="write what came of it into docs/compatibility.md",
    )
    parser.add_argument("--part-timeout-s", type=float, default=2_400.0, help="of one part")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
