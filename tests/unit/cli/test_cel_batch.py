"""``dray cel eval --batch``: Kubernetes' recorded answers line by line, whatever the lines are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray_cli.cel import cel
from dray_cli.cel_batch import answers

VECTORS = Path(__file__).parents[2] / "vectors"
SAMPLES = [
    json.loads(line)
    for name in ("cel-sample.jsonl", "cel-recorded.jsonl")
    for line in (VECTORS / name).read_text("utf-8").splitlines()
]
ASKED = ("id", "k8s", "expression", "driver", "device")
EXACT = ("admission", "result", "cost", "actual_cost")
KEYS = {"id", "compile_error", "admission", "result", "eval_error", "cost"}
GOOD = {"id": "g", "expression": "device.driver == 'd.x'", "driver": "d.x", "device": {}}


def ask(*lines: bytes | str | dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to some lines."""
    written = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
    return list(answers([w.encode() if isinstance(w, str) else w for w in written]))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["id"])
def test_every_recorded_answer_of_kubernetes_is_ours(sample: dict[str, Any]) -> None:
    (found,) = ask({key: sample[key] for key in ASKED if key in sample})
    assert set(found) >= KEYS
    for key in EXACT:
        if key in sample:
            assert found[key] == sample[key], key
    for key in ("compile_error", "eval_error"):
        assert (found[key] is None) == (sample[key] is None), (key, found[key], sample[key])


def test_compile_errors_stand_at_the_same_place() -> None:
    refused = [s for s in SAMPLES if "ERROR: <input>:" in (s["compile_error"] or "")]
    assert len(refused) > 50
    for sample in refused:
        (found,) = ask({key: sample[key] for key in ASKED if key in sample})
        place = sample["compile_error"].split("<input>:")[1].split(": ")[0]
        assert found["compile_error"].startswith(f"compilation failed: ERROR: <input>:{place}: ")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "expected a JSON object"),
        (b"[" * 100_000, "no JSON"),
        ({"id": 7}, "expression is missing"),
        ({"id": 7, "expression": 1}, "expression is int, expected str"),
        ({"id": 7, "expression": "true", "k8s": "new"}, "not a version of Kubernetes"),
        ({"id": 7, "expression": "true", "device": []}, "device is list"),
        ({"id": 7, "expression": "true", "device": {"capacity": {"a": 1}}}, "expected an object"),
    ],
    ids=str,
)
def test_a_bad_line_is_answered_and_the_next_one_too(line: Any, expected: str) -> None:
    bad, good = ask(line, GOOD)
    assert expected in bad["error"]
    assert bad["id"] == (7 if isinstance(line, dict) else None)
    assert (good["id"], good["result"]) == ("g", True)


def test_blank_lines_are_passed_over_and_ids_may_be_anything() -> None:
    found = ask("", "  ", {**GOOD, "id": [1, None]}, "")
    assert [(answer["id"], answer["result"]) for answer in found] == [([1, None], True)]


@pytest.mark.parametrize(
    ("version", "admission"), [("1.34", "compile-error"), ("1.35", "ok"), ("v1.36.3", "ok")]
)
def test_each_line_has_a_version_of_its_own(version: str, admission: str) -> None:
    (found,) = ask({**GOOD, "expression": "lists.range(2).size() == 2", "k8s": version})
    assert (found["admission"], found["result"]) == (admission, True)


def test_half_a_character_is_answered_in_characters_that_any_reader_takes() -> None:
    lone = {**GOOD, "id": "\ud800", "expression": "'\ud800' == 1"}
    found = CliRunner().invoke(cel, ["eval", "--batch"], input=json.dumps(lone) + "\n")
    assert found.exit_code == 0
    assert found.stdout.isascii()
    assert json.loads(found.stdout)["admission"] == "compile-error"


def test_the_command_answers_each_line_before_it_has_the_next() -> None:
    command = [sys.executable, "-m", "dray_cli", "cel", "eval", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in ("first", "second"):
            process.stdin.write(json.dumps({**GOOD, "id": name}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == name
        process.stdin.close()
        assert process.wait(timeout=30) == 0
