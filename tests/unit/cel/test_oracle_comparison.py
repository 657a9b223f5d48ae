"""The comparison with Kubernetes' compiler: what it asks, and what it calls a difference."""

from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[2] / "conformance" / "oracle"
THEIRS = {
    "compile_error": None,
    "admission": "ok",
    "result": True,
    "eval_error": None,
    "cost": 5,
    "actual_cost": 4,
    "timed_out": False,
    "panicked": None,
    "bad_input": None,
    "differs": True,
}
OURS = {key: THEIRS[key] for key in ("compile_error", "result", "eval_error", "cost")} | {
    "admission": "ok",
    "actual_cost": 4,
}


@pytest.fixture(scope="module")
def module(importing_from):
    """Import a module of the oracle's folder."""
    with importing_from(ORACLE) as module:
        yield module


@pytest.fixture(scope="module")
def pairs(module):
    return list(module("generate").pairs(5, 600, {}))


def _compared(module, pairs, **ours):
    """The comparison of one pair that dray answers with ``ours``."""
    pair = pairs[0]
    return module("differences").compare(
        [pair], {pair.id: {"id": pair.id, **THEIRS}}, {pair.id: {"id": pair.id, **OURS, **ours}},
        "1.36",
    )  # fmt: skip


def test_the_same_seed_makes_the_same_pairs(module, pairs):
    assert list(module("generate").pairs(5, 60, {})) == pairs[:60]
    assert list(module("generate").pairs(6, 60, {})) != pairs[:60]


def test_every_feature_has_its_turn_and_every_operation_a_feature(module, pairs):
    gated = list(module("generate").pairs(5, 600, {"DRAListTypeAttributes": True}))
    assert {pair.tag for pair in gated} == set(module("generate").TAGS)
    assert {pair.tag for pair in pairs} == set(module("generate").TAGS) - {"list attributes"}
    assert any("strings" in str(pair.device) for pair in gated)
    assert {operation.tag for operation in module("operations").OPERATIONS} <= {
        pair.tag for pair in pairs
    }


def test_witnesses_fail_where_the_feature_is_used(pairs):
    witnessed = [pair for pair in pairs if pair.witness]
    assert len(witnessed) > 400
    assert all("[7654]" in pair.witness for pair in witnessed)
    assert not any("[7654]" in pair.expression for pair in pairs)


def test_equal_answers_are_not_differences(module, pairs):
    found = _compared(module, pairs, actual_cost=4)
    assert found.differences == ()
    assert found.decided[pairs[0].tag] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"result": False},
        {"cost": 6},
        {"actual_cost": 5},
        {"admission": "too-complex"},
        {"compile_error": "no"},
        {"eval_error": "no", "result": None},
        {"error": "line 1: dray failed"},
    ],
    ids=str,
)
def test_each_aspect_is_compared(module, pairs, change):
    (difference,) = _compared(module, pairs, **change).differences
    assert set(difference.aspects) == set(change)


def test_the_words_of_errors_may_differ(module, pairs):
    pair = pairs[0]
    theirs = {**THEIRS, "result": None, "eval_error": "no such key: a"}
    ours = {**OURS, "result": None, "eval_error": "lacks a"}
    found = module("differences").compare([pair], {pair.id: theirs}, {pair.id: ours}, "1.36")
    assert found.differences == ()


@pytest.mark.parametrize("why", ["timed_out", "panicked", "bad_input"])
def test_what_kubernetes_leaves_unanswered_is_counted_apart(module, pairs, why):
    pair = pairs[0]
    theirs = {**THEIRS, why: True, "differs": None}
    found = module("differences").compare([pair], {pair.id: theirs}, {pair.id: OURS}, "1.36")
    assert found.undecided == {why: 1}
    assert sum(found.decided.values()) == 0


def test_an_answer_that_kubernetes_gives_at_times_is_not_a_difference(module, pairs):
    differences, pair = module("differences"), pairs[0]
    found = _compared(module, pairs, actual_cost=9)
    seen = [{"result": True, "eval_error": None, "actual_cost": cost} for cost in (4, 9)]
    settled = differences.settled(found, {pair.id: {**THEIRS, "observed": seen}})
    assert settled.differences == ()
    assert settled.intended == {differences.ORDER_OF_MAPS: 1}
    kept = differences.settled(found, {pair.id: {**THEIRS, "observed": seen[:1]}})
    assert kept.differences == found.differences


def test_intended_differences_are_those_of_the_list_only(module):
    reason_for = module("intended").reason_for
    stopped = {"eval_error": "operation cancelled: actual cost limit exceeded"}
    question = {"expression": "lists.range(100000).all(i, i >= 0)", "device": {}}
    assert "limits the work" in reason_for(question, THEIRS, {**stopped, "actual_cost": 9})
    assert reason_for(question, THEIRS, {**stopped, "actual_cost": 1_000_001}) == ""
    big = {"capacity": {"m": {"value": "1.5Gi"}}}
    assert "operand itself" in reason_for(
        {"expression": "device.capacity['d'].m.add(1) == device.capacity['d'].m", "device": big},
        THEIRS, OURS,
    )  # fmt: skip
    assert reason_for({"expression": "true", "device": big}, THEIRS, OURS) == ""


def test_the_report_shows_both_answers(module, pairs):
    report = module("report")
    found = _compared(module, pairs, result=False)
    text = report.as_text(found, report.Run("1.36", 5, 1, 2.0), 3)
    assert repr(pairs[0].expression) in text
    assert "result: Kubernetes true" in text
    assert "        dray       false" in text
    assert text.endswith("1 pairs (1 true) in 2 s: 1 differences")
    assert report.as_json(found, report.Run("1.36", 5, 1, 2.0))["differences"][0]["differs"]


def test_each_minor_pins_a_module_of_its_own(module):
    building = module("building")
    programs = {minor: building.program_of(minor) for minor in building.MINORS}
    assert {program.version[:4] for program in programs.values()} == set(building.MINORS)
    assert len({str(program.directory("1.26.0")) for program in programs.values()}) == 4


@pytest.mark.parametrize(
    ("expression", "literal"),
    [("device.driver", '"gpu"'), ("1 + 1", "2"), ("device.nothing", None)],
)
def test_a_value_is_written_as_the_literal_that_equals_it(module, expression, literal):
    found = module("sharpen").literal_of(expression, "gpu", {"name": "a"})
    assert found == literal
