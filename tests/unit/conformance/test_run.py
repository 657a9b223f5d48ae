"""``make conformance``: what counts as a difference, and what it shows."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conformance.left_out import only_where

RUNNER = Path(__file__).parents[2] / "conformance"
REPORT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite>
<testcase classname="tests.contract.test_pods" name="test_one" time="1"/>
<testcase classname="tests.contract.test_pods" name="test_two" time="1"/>
{more}
</testsuite></testsuites>"""
NOT_ON = """<testcase classname="tests.a" name="test_taints">
<skipped type="pytest.skip" message="not on 1.34: taints are dropped">x</skipped></testcase>"""
OTHER_SKIP = """<testcase classname="tests.a" name="test_x">
<skipped type="pytest.skip" message="no kubectl">x</skipped></testcase>"""
EXPECTED_FAILURE = """<testcase classname="tests.a" name="test_x">
<skipped type="pytest.xfail" message="not on 1.34: known">x</skipped></testcase>"""
FAILED = """<testcase classname="tests.a" name="test_{number}">
<failure message="AssertionError: no stand&#10;more">x</failure></testcase>"""


@pytest.fixture(scope="module")
def module(importing_from):
    """Import a module of the runner."""
    with importing_from(RUNNER) as module:
        yield module


@pytest.fixture
def of_tests(module, tmp_path):
    """The result of a part whose pytest ended with a code and reported more tests."""

    def read(code, *more, all_must_run=False):
        report = tmp_path / "report.xml"
        report.write_text(REPORT.format(more="\n".join(more)))
        read = module("run_results").of_tests
        return read("view", code, report, 2.0, tmp_path / "log", all_must_run=all_must_run)

    return read


def of_command(module, tmp_path, code, printed):
    log = tmp_path / "log"
    log.write_text(printed)
    return module("run_results").of_command("allocation", code, 2.0, log)


def exit_code(module, *results):
    return module("run_report").MinorReport("1.36.3", 1.0, results).exit_code


def test_a_test_that_is_meaningless_on_a_version_is_shown_and_no_difference(
    module, of_tests
) -> None:
    result = of_tests(0, NOT_ON)
    assert result.holds
    assert (result.passed, result.not_on) == (2, (("not on 1.34: taints are dropped", 1),))
    assert exit_code(module, result) == 0


def test_no_test_may_be_meaningless_where_all_must_run(module, of_tests) -> None:
    result = of_tests(0, NOT_ON, all_must_run=True)
    assert result.differences == ("a::test_taints: skipped: not on 1.34: taints are dropped",)
    assert (result.passed, result.not_on) == (2, ())
    assert exit_code(module, result) == 1


@pytest.mark.parametrize(("minor", "holds"), [("1.34", True), ("1.36", False), ("1.37", True)])
async def test_all_tests_must_run_on_the_default_minor_alone(
    module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, minor: str, holds: bool
) -> None:
    """A run of `.ci/run` is one of it: what another leaves out is run by that."""
    run = module("run")

    async def pytest_of(command, log, **_):
        log.with_suffix(".xml").write_text(REPORT.format(more=NOT_ON))
        return 0

    monkeypatch.setattr(run, "run", pytest_of)
    monkeypatch.setattr(run, "LOGS", tmp_path)
    (view,) = [part for part in module("run_parts").PARTS if part.name == "view"]

    result = await run._part(view, minor, False, 60.0)

    assert result.holds == holds


def test_a_test_is_left_out_with_a_reason_that_says_where_it_runs(
    module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_KUBERNETES", "1.34")
    with pytest.raises(pytest.skip.Exception) as left_out:
        only_where(False, "its API server drops taints")
    assert str(left_out.value) == "not on 1.34: its API server drops taints; runs on 1.36"
    assert str(left_out.value).startswith(module("run_results").NOT_ON)
    only_where(True, "unused")


def test_a_test_is_never_left_out_on_the_default_minor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAY_KUBERNETES", raising=False)
    with pytest.raises(pytest.fail.Exception, match=r"on 1\.36 it would run nowhere"):
        only_where(False, "its API server drops taints")


def test_make_takes_the_default_minor(module) -> None:
    makefile = (RUNNER.parents[1] / "Makefile").read_text()
    assert f"\nK8S ?= {module('run').DEFAULT_MINOR}\n" in makefile


def test_no_test_skips_but_with_such_a_reason() -> None:
    """`mark.skip` and `mark.skipif` are differences everywhere: their reasons begin otherwise."""
    skipping = {
        str(path.relative_to(RUNNER.parent))
        for folder in ("conformance", "contract")
        for path in (RUNNER.parent / folder).rglob("*.py")
        if "pytest.skip(" in path.read_text()
    }
    assert skipping == {"conformance/left_out.py"}


@pytest.mark.parametrize("more", [OTHER_SKIP, EXPECTED_FAILURE])
def test_a_test_that_was_left_out_otherwise_is_a_difference(module, of_tests, more: str) -> None:
    result = of_tests(0, more)
    assert not result.holds
    assert exit_code(module, result) == 1


def test_failures_for_one_reason_are_reported_once_and_counted(module, of_tests) -> None:
    result = of_tests(1, *(FAILED.format(number=number) for number in range(3)))
    assert result.differences == ("a::test_0 and 2 more: AssertionError: no stand",)
    assert result.different == 3
    text = module("run_report").as_text([module("run_report").MinorReport("1.36.3", 1, (result,))])
    assert "2 passed, 3 DIFFERENT" in text
    assert "something differs" in text


@pytest.mark.parametrize(
    ("code", "why"), [(5, "there is no test of this part"), (3, "pytest ended with exit code 3")]
)
def test_a_part_without_tests_or_whose_pytest_broke_does_not_hold(of_tests, code, why) -> None:
    assert of_tests(code).differences == (why,)


def test_a_command_says_its_last_line_and_may_not_be_able_to_run(module, tmp_path: Path) -> None:
    agrees = of_command(module, tmp_path, 0, "a table\n\n5000 agree\n")
    assert (agrees.says, agrees.holds) == ("5000 agree", True)
    differs = of_command(module, tmp_path, 1, "7 differ\n")
    assert exit_code(module, agrees, differs) == 1
    cannot = of_command(module, tmp_path, 3, "error: no Go\n")
    assert cannot.cannot_run == "error: no Go"
    assert exit_code(module, agrees, cannot) == 3
    assert exit_code(module, differs, cannot) == 1


def test_a_run_in_which_no_part_ended_proves_nothing(module) -> None:
    report = module("run_report")
    assert "no part ended" in report.as_text([report.MinorReport("1.36.3", 1.0, ())])


def test_every_part_has_tests_or_a_command(module) -> None:
    parts = module("run_parts").PARTS
    for part in parts:
        assert bool(part.paths) != bool(part.command), part.name
    assert len({part.name for part in parts}) == len(parts)


def test_every_part_names_what_can_be_built(module) -> None:
    builds = module("run_builds").BUILDS
    assert {name for part in module("run_parts").PARTS for name in part.needs} < builds.keys()


@pytest.mark.parametrize("target", ["build", "conformance"])
def test_the_command_of_make_starts(target: str) -> None:
    root, outside = RUNNER.parents[1], {k: v for k, v in os.environ.items() if "MAKE" not in k}
    make = ["make", "--dry-run", "--no-print-directory", "--old-file=.venv/.installed", target]
    printed = subprocess.run(
        make, cwd=root, env=outside, check=True, capture_output=True, text=True
    )
    command = (
        printed.stdout.replace("\\\n", " ").replace(".venv/bin/python", sys.executable).strip()
    )
    assert command.startswith("PYTHONPATH=")
    assert "\n" not in command
    done = subprocess.run(
        f"{command} --help", shell=True, cwd=root, env=outside, capture_output=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("minor", "built"), [("1.34", []), ("1.35", ["1.34"])])
async def test_a_stack_is_upgraded_from_the_minor_before(
    module, monkeypatch: pytest.MonkeyPatch, minor: str, built: list[str]
) -> None:
    builds, seen = module("run_builds"), []

    async def build(progress, minor):
        seen.append(minor)

    monkeypatch.setattr(builds, "build", build)
    await builds.BUILDS["control-plane-before"](minor, print)
    assert seen == built


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], []),
        (["--pairs", "40", "--cases", "30"], [["--pairs", "40"], ["--cases", "30"]]),
    ],
)
def test_the_command_line_says_how_many_questions_are_asked(
    module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options, asked
) -> None:
    """Without options each command asks as many as it does by itself."""
    run, commands = module("run"), []

    async def build(progress, minor):
        return SimpleNamespace(version="1.36.3")

    async def oracle(minor, progress):
        pass

    async def running(command, log, **_):
        commands.append(command)
        log.write_text("all agree")
        return 0

    monkeypatch.setattr(run, "build", build)
    monkeypatch.setattr(run, "BUILDS", {"oracle": oracle})
    monkeypatch.setattr(run, "run", running)
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--parts", "selectors,allocation", *options])
    assert run.main() == 0
    assert [command[4:] for command in commands] == (asked or [[], []])


def test_a_part_whose_needs_can_not_be_built_can_not_run(
    module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = module("run")

    async def build(progress, minor):
        return SimpleNamespace(version="1.36.3")

    async def oracle(minor, progress):
        raise module("dray_sandbox.golang.failures").CannotBuildHereError("the disk is full")

    monkeypatch.setattr(run, "build", build)
    monkeypatch.setattr(run, "BUILDS", {"oracle": oracle})
    monkeypatch.setattr(sys, "argv", ["run.py", "--parts", "selectors"])
    assert run.main() == 3
    assert "can't run here: the disk is full" in capsys.readouterr().out


def test_where_nothing_can_be_built_it_says_why_and_exits_with_3(
    module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = module("run")

    async def build(progress, minor):
        raise module("dray_sandbox.golang.toolchain").ToolchainError("there is no Go, and no index")

    monkeypatch.setattr(run, "build", build)
    monkeypatch.setattr(sys, "argv", ["run.py", "--k8s", "1.34,1.37", "--output", "json"])
    assert run.main() == 3
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert [version["cannot_run"] for version in versions] == ["there is no Go, and no index"] * 2


def test_a_run_that_is_ended_shows_what_ran_until_then(
    module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, result = module("run"), module("run_results").Result

    async def build(progress, minor):
        return SimpleNamespace(version="1.36.3")

    async def part(part, minor, everything, timeout_s, size):
        if part.name == "view":
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        return result(part.name, 1.0, passed=4)

    monkeypatch.setattr(run, "build", build)
    monkeypatch.setattr(run, "_part", part)
    monkeypatch.setattr(sys, "argv", ["run.py", "--parts", "rbac,view,path-b"])
    assert run.main() == 130
    shown = capsys.readouterr().out
    assert "path-b           1 s  4 passed" in shown
    assert "rbac" not in shown


def test_the_recorded_tables_show_every_part_and_what_differed(module, of_tests) -> None:
    page = module("run_page")
    view, rbac = of_tests(0, NOT_ON), of_tests(1, FAILED.format(number=1))
    parts = {
        "view": page._recorded(view, "2026-11-21"),
        "rbac": page._recorded(rbac, "2026-11-22"),
    }
    table = page.tables({"1.34": {"version": "1.34.4", "parts": parts}})
    assert "| view: kube-scheduler's own view agrees | 2 passed, 1 not on this version |" in table
    assert "| upgrade: a running stack outlives an upgrade | not run |" in table
    assert "| when, and how long | 2026-11-21 to 2026-11-22, 0 min |" in table
    assert "- 1.34.4, view: 1 not on 1.34: taints are dropped" in table
    assert "- 1.34.4, rbac: **differs**: a::test_1: AssertionError: no stand" in table


def test_recording_replaces_the_parts_that_ran_and_keeps_the_others(
    module, of_tests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, report = module("run_page"), module("run_report").MinorReport
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results.json")
    page.PAGE.write_text(f"before\n{page.BEGIN}\nold\n\n{page.END}after\n")
    failed = dataclasses.replace(of_tests(1, FAILED.format(number=1)), part="rbac")
    page.record([report("1.37.0", 1.0, ()), report("1.36.3", 1.0, (of_tests(0), failed))])
    assert "2 passed, 1 DIFFERENT" in page.PAGE.read_text()
    page.record([report("1.36.3", 1.0, (dataclasses.replace(failed, differences=()),))])
    written = page.PAGE.read_text()
    assert "DIFFERENT" not in written
    assert "kube-scheduler's own view agrees | 2 passed |" in written
    assert written.startswith("before")
    assert written.endswith("after\n")
