"""`make proof`: its sizes, what it remembers, and what its report says."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from dray.api.errors import PermanentError
from tools.command import run
from tools.proof import __main__ as program
from tools.proof.parts import CHAOS_SEEDS, FAULT_SEEDS, MINORS, NAMES, ProofPart, parts
from tools.proof.report import ProofReport, as_json, as_markdown
from tools.proof.results import Result, Results, last_words
from tools.proof.tree import Tree, read_tree

ROOT = Path(__file__).resolve().parents[3]
TREE = Tree("a" * 40, "b" * 40, is_committed=True)
ONE, TWO = (
    ProofPart("one", "The first", ("make a", "make b")),
    ProofPart("two", "The second", ("make c",)),
)
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def result(command: str, exit_code: int = 0, says: str = "2 passed") -> Result:
    return Result(
        command=command,
        exit_code=exit_code,
        wall_s=61.0,
        cpu_s=100.0,
        ended_at="2026-11-22T10:00:00+00:00",
        says=says,
        log=f"logs/{command.split()[1]}.log",
    )


def a_report(*results: Result, known: Iterable[ProofPart] = (ONE, TWO)) -> ProofReport:
    return ProofReport(TREE, "a machine", tuple(known), results)


def seeds_of(commands: Iterable[str]) -> list[int]:
    found = []
    for command in commands:
        first, count = re.fullmatch(r".* FIRST=(\d+) SEEDS=(\d+)", command).groups()
        found += range(int(first), int(first) + int(count))
    return found


def test_every_seed_is_run_once() -> None:
    by_name = {part.name: part.commands for part in parts(None)}
    assert seeds_of(by_name["chaos"]) == list(range(CHAOS_SEEDS))
    assert seeds_of(by_name["faults"]) == list(range(FAULT_SEEDS))


def test_every_command_is_a_target_of_make_or_a_program_of_the_checkout() -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    for part in parts(Path("/openb")):
        for command in part.commands:
            program_, target, *_ = command.split()
            assert program_ == ".venv/bin/dray" or (program_ == "make" and target in targets)


def test_conformance_is_proved_on_every_minor_with_questions_in_full() -> None:
    (conformance,) = [part for part in parts(None) if part.name == "conformance"]
    assert {minor for command in conformance.commands for minor in MINORS if minor in command} == {
        *MINORS
    }
    assert not any("PAIRS" in command or "CASES" in command for command in conformance.commands)


def test_a_part_without_its_files_has_no_commands_and_says_what_to_give() -> None:
    found = {part.name: part for part in parts(None)}
    assert tuple(found) == NAMES
    assert found["openb"].commands == ()
    assert a_report(known=found.values()).state(found["openb"]) == "not run: give OPENB=FOLDER"


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ([], "not run to the end"),
        ([result("make a")], "not run to the end"),
        ([result("make a"), result("make b")], "holds"),
        ([result("make a", 1)], "FAILED"),
        ([result("make a", 1), result("make b"), result("make a")], "holds"),
        ([result("make a"), result("make b"), result("make b", 1)], "FAILED"),
    ],
)
def test_a_part_holds_if_the_last_run_of_each_command_passed(results, state: str) -> None:
    assert a_report(*results).state(ONE) == state


def test_parts_together_are_as_good_as_the_worst() -> None:
    report = a_report(result("make a"), result("make b"), result("make c", 2))
    assert report.worst(["one"]) == "holds"
    assert report.worst(["one", "two"]) == "FAILED"


def test_the_report_names_commit_machine_times_and_results() -> None:
    text = as_markdown(a_report(result("make a"), result("make b"), result("make c", 2, "x | y")))
    assert text.startswith(f"# Proof of {'b' * 12}: FAILED\n")
    assert f"- commit: {'b' * 40}\n" in text
    assert "- machine: a machine\n" in text
    assert "| one: The first | holds | 2 of 2 | 2 min 2 s | 3 min 20 s |" in text
    assert "| two: The second | FAILED | 1 of 1 | 1 min 1 s | 1 min 40 s |" in text
    assert "| `make a` | passed | 1 min 1 s |" in text
    assert "| `make c` | FAILED with exit code 2, see logs/c.log |" in text
    assert r"x \| y" in text


def test_the_report_does_not_hide_a_run_that_failed_before() -> None:
    report = a_report(result("make c", 1), result("make c"))
    assert "passed; had FAILED before, see logs/c.log" in as_markdown(report)
    assert [run.exit_code for run in as_json(report)["parts"][1]["commands"][0]["runs"]] == [1, 0]


def test_the_report_tells_of_changes_that_are_not_committed() -> None:
    report = replace(a_report(), tree=replace(TREE, is_committed=False))
    assert ", with changes that are not committed\n" in as_markdown(report)


def test_results_are_kept_in_their_order(tmp_path: Path) -> None:
    kept = Results(tmp_path / "results.jsonl")
    assert kept.read() == []
    kept.add(result("make a", 1))
    kept.add(result("make a", says="straße"))
    assert Results(kept.file).read() == [result("make a", 1), result("make a", says="straße")]


def test_results_that_can_not_be_read_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"command": "make a", "exit')
    with pytest.raises(PermanentError, match=r"results\.jsonl can't be read .*: remove it"):
        Results(tmp_path / "results.jsonl").read()


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", "it printed nothing"),
        ("....  [ 50%]\n....  [100%]\n8 passed in 2 s\n", "8 passed in 2 s"),
        ("a\nb\nc\n\nmake: *** [Makefile:9: x] Error 1\n", "b; c"),
        ("x" * 1000, "x" * 299 + "…"),
    ],
)
def test_the_last_words_of_a_command_are_those_about_its_outcome(
    tmp_path: Path, printed: str, words: str
) -> None:
    log = tmp_path / "log"
    log.write_text(printed)
    assert last_words(log) == words


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    command = ("git", "-C", str(folder), *identity, *words)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, in which `.cache` is ignored."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text(".cache/\n")
    (folder / "code").write_text("1\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


@needs_git
def test_a_tree_is_what_lies_here_and_reading_it_changes_nothing(checkout: Path) -> None:
    committed = read_tree(checkout)
    assert committed.is_committed
    assert committed.commit == git(checkout, "rev-parse", "HEAD").strip()
    (checkout / ".cache").mkdir()
    (checkout / ".cache" / "log").write_text("ignored")
    assert read_tree(checkout) == committed
    (checkout / "new").write_text("not added")
    changed = read_tree(checkout)
    assert (changed.hash != committed.hash, changed.is_committed) == (True, False)
    assert git(checkout, "status", "--porcelain") == "?? new\n"
    (checkout / "new").unlink()
    assert read_tree(checkout) == committed


@needs_git
def test_a_folder_that_is_not_a_clone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="run it in a clone of the repository"):
        read_tree(tmp_path)


Prove = Callable[..., int]


@pytest.fixture
def prove(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Prove:
    """Runs `make proof` in the checkout with these commands as its part `test`."""
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(program, "ROOT", checkout)
    monkeypatch.setattr(program, "KEPT", checkout / ".cache" / "proof")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["proof", "--parts", "test"])

    def start(*commands: str) -> int:
        monkeypatch.setattr(
            program, "parts", lambda openb: (ProofPart("test", "It works", commands),)
        )
        return program.main()

    return start


def the_report(checkout: Path) -> dict:
    (report,) = checkout.glob(".cache/proof/*/report.json")
    return json.loads(report.read_text())


def runs_of(checkout: Path) -> list[int]:
    (part,) = the_report(checkout)["parts"]
    return [len(command["runs"]) for command in part["commands"]]


@needs_git
def test_what_passed_is_not_run_again_and_what_failed_is(
    prove: Prove, checkout: Path, tmp_path: Path
) -> None:
    later = f"test -e {tmp_path / 'there'}"
    assert prove("true", later) == 1
    assert the_report(checkout)["result"] == "FAILED"
    (tmp_path / "there").touch()
    assert prove("true", later) == 0
    assert the_report(checkout)["result"] == "holds"
    assert runs_of(checkout) == [1, 2]


@needs_git
def test_a_run_that_is_stopped_goes_on_where_it_was(
    prove: Prove, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(words, log, *, tick):
        if words == ["echo", "two"]:
            raise KeyboardInterrupt
        return run(words, log, tick=tick)

    monkeypatch.setattr(program, "run", stopped)
    assert prove("echo one", "echo two") == 128 + signal.SIGINT
    assert runs_of(checkout) == [1, 0]
    monkeypatch.setattr(program, "run", run)
    assert prove("echo one", "echo two") == 0
    assert runs_of(checkout) == [1, 1]


@needs_git
def test_other_files_are_proved_from_the_beginning(prove: Prove, checkout: Path) -> None:
    assert prove("true") == 0
    (checkout / "code").write_text("2\n")
    assert prove("false") == 1
    assert len(list(checkout.glob(".cache/proof/*/report.md"))) == 2


@needs_git
def test_a_result_during_which_files_were_changed_is_not_kept(
    prove: Prove, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prove("touch new-file") == 1
    assert "files were changed while `touch new-file` ran" in capsys.readouterr().err
    assert not list(checkout.glob(".cache/proof/*/results.jsonl"))


@needs_git
def test_what_make_proof_was_given_does_not_reach_its_commands(
    prove: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEFLAGS", "s -- TESTS=tests/unit/x PARTS=test")
    monkeypatch.setenv("TESTS", "tests/unit/x")
    assert prove("sh -c 'test -z \"$MAKEFLAGS$TESTS\"'") == 0


def test_unknown_parts_and_folders_without_files_are_wrong_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value, output in (
        ("--parts", "test,chaoss", "'chaoss': known are test, "),
        ("--openb", str(tmp_path), "docs/user-guide/simulate.md says where it comes from"),
    ):
        monkeypatch.setattr(sys, "argv", ["proof", option, value])
        with pytest.raises(SystemExit) as ended:
            program.main()
        assert ended.value.code == 2
        assert output in capsys.readouterr().err
