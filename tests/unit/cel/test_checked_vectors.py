"""What Kubernetes answers when it compiles (tests/vectors/cel-checked.jsonl) is what dray does."""

import json
import re
from pathlib import Path

import pytest

from dray.cel.check.static_check import check_selector
from dray.cel.cost.estimate import estimate
from dray.cel.environment import environment
from dray.cel.errors import CelCompileError
from dray.cel.syntax.parser import parse

VECTORS = Path(__file__).parents[2] / "vectors"
MOST_COST = 1_000_000
LINES = (VECTORS / "cel-checked.jsonl").read_text("utf-8").splitlines()
SAMPLES = [json.loads(line) for line in LINES]
PLACE = re.compile(r"ERROR: <input>:([0-9]+:[1-9][0-9]*): ")
ELSEWHERE = ("invalid argument to has() macro",)
"""cel-go reads on after a syntax error, and may then find an error that stands before it."""


def answer(expression, version, mode):
    """Cost, or the error."""
    env = environment(version, mode)
    try:
        return estimate(check_selector(parse(expression, env), expression, env)), None
    except CelCompileError as error:
        return None, error


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_refusals_and_costs_are_those_of_kubernetes(version):
    differ = {}
    for sample in (s for s in SAMPLES if s["k8s"] == version):
        cost, error = answer(sample["expression"], version, "stored")
        if (cost, error is None) != (sample["cost"], sample["compile_error"] is None):
            differ[sample["expression"]] = (cost, error, sample)
    assert differ == {}


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_admission_is_that_of_kubernetes(version):
    differ = {}
    for sample in (s for s in SAMPLES if s["k8s"] == version):
        cost, error = answer(sample["expression"], version, "new")
        verdict = "compile-error" if error else "too-complex" if cost > MOST_COST else "ok"
        if verdict != sample["admission"]:
            differ[sample["expression"]] = (cost, error, sample)
    assert differ == {}


def test_errors_stand_where_kubernetes_sees_them():
    differ, compared = {}, 0
    for sample in SAMPLES:
        place = PLACE.search(sample["compile_error"] or "")
        if place and not any(text in sample["compile_error"] for text in ELSEWHERE):
            _, error = answer(sample["expression"], sample["k8s"], "stored")
            compared += 1
            if place[1] != f"{error.line}:{error.column}":
                differ[sample["expression"]] = (str(error), sample["compile_error"])
    assert differ == {}
    assert compared > 200


def test_there_are_samples_of_every_answer():
    assert {s["admission"] for s in SAMPLES} == {"ok", "compile-error", "too-complex"}
    assert len({s["k8s"] for s in SAMPLES}) == 4
