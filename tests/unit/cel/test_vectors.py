"""Kubernetes' recorded answers (tests/vectors/cel-*.jsonl), and what they cost, are ours."""

import json
from pathlib import Path

import pytest

from dray.cel.device import view_from_json
from dray.cel.environment import environment
from dray.cel.errors import CelError
from dray.cel.eval.program import compile

VECTORS = Path(__file__).parents[2] / "vectors"


def _read(name):
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


SAMPLES = _read("cel-sample.jsonl")
RECORDED = _read("cel-recorded.jsonl")
EVALUATED = _read("cel-evaluated.jsonl")


def _answer(sample):
    """Presence of a compile error, the result, presence of an evaluation error."""
    try:
        program = compile(sample["expression"])
    except CelError:
        return True, None, False
    try:
        return False, program.matches(view_from_json(sample["driver"], sample["device"])), False
    except CelError:
        return False, None, True


@pytest.mark.parametrize("sample", SAMPLES + RECORDED, ids=lambda sample: sample["id"])
def test_answers_are_those_of_kubernetes(sample):
    expected = (
        sample["compile_error"] is not None,
        sample["result"],
        sample["eval_error"] is not None,
    )
    assert _answer(sample) == expected


@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if s["actual_cost"] is not None],
    ids=lambda sample: sample["id"],
)
def test_an_evaluation_costs_what_kubernetes_counts(sample):
    view = view_from_json(sample["driver"], sample["device"])
    assert compile(sample["expression"]).evaluate(view).cost == sample["actual_cost"]


@pytest.mark.parametrize("sample", EVALUATED, ids=lambda sample: sample["id"])
def test_each_feature_gives_and_costs_what_it_does_in_kubernetes(sample):
    program = compile(sample["expression"], environment(sample["k8s"]))
    found = program.evaluate(view_from_json(sample["driver"], sample["device"]))

    expected = (sample["result"], sample["eval_error"] is not None, sample["actual_cost"])
    assert (found.value, found.error is not None, found.cost) == expected


def test_no_sample_is_left_out():
    assert (len(SAMPLES), len(RECORDED), len(EVALUATED)) == (60, 240, 351)


@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if "ERROR: <input>:" in (s["compile_error"] or "")],
    ids=lambda sample: sample["id"],
)
def test_compile_errors_stand_where_kubernetes_sees_them(sample):
    position = sample["compile_error"].split("<input>:")[1].split(": ")[0]
    with pytest.raises(CelError) as caught:
        compile(sample["expression"])
    assert str(caught.value).startswith(position + ": ")
