"""The comparison with kube-scheduler's plugins: what it asks, and what it calls a difference."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest

from dray.api.pods import HostPort, NodeExpression
from dray_allocator.nodes import predicates

ORACLE = Path(__file__).parents[2] / "conformance" / "oracle"
CASES = 100
LEAST_SHARE = 0.05


@pytest.fixture(scope="module")
def module(importing_from):
    """Import a module of the oracle's folder."""
    with importing_from(ORACLE) as module:
        yield module


@pytest.fixture(scope="module")
def asked(module):
    """As one of 1.37: no pods under a resize, which count once the server has stored their pods."""
    return list(module("nodes.cases").cases(1, CASES, "1.37"))


@pytest.fixture(scope="module")
def answers(module, asked):
    """dray's answers, which `make oracle-nodes` holds against Kubernetes'."""
    return {case.id: answered(module, case) for case in asked}


def answered(module, case):
    return module("nodes.dray_side").answer(case.question, case.question)


def compared(module, asked, theirs, ours):
    return module("nodes.comparison").compare(asked, theirs, ours)


def test_the_same_seed_asks_the_same(module, asked):
    again = list(module("nodes.cases").cases(1, CASES, "1.37"))
    assert [json.dumps(case.question) for case in again] == [
        json.dumps(case.question) for case in asked
    ]
    other = next(module("nodes.cases").cases(2, 1, "1.37"))
    assert other.question["pod"]["spec"] != asked[0].question["pod"]["spec"]


def test_each_predicate_alone_decides_enough_cases(module, asked, answers):
    found = compared(module, asked, answers, answers)
    name, share = found.rarest()
    assert share >= LEAST_SHARE, name
    assert found.nodes == 8 * CASES
    assert 0 < found.feasible < found.nodes
    assert not found.differences


def test_only_1_36_is_asked_about_pods_under_a_resize(module):
    def resized(minor):
        questions = (case.question for case in module("nodes.cases").cases(1, 20, minor))
        return [pod for one in questions for pod in one["pods"] if "containerStatuses" in str(pod)]

    assert resized("1.36")
    assert not resized("1.37")


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (HostPort, "conflicts", lambda self, other: self == other),
        (NodeExpression, "holds", lambda self, seen: self.key in seen),
        (predicates, "_tolerates", lambda needs, taint: bool(needs.tolerations)),
        (predicates, "_resources", lambda needs, node, held, given: iter(())),
    ],
)
def test_another_rule_makes_another_answer(
    module, asked, answers, monkeypatch: pytest.MonkeyPatch, owner, name, wrong
):
    monkeypatch.setattr(owner, name, wrong)
    mine = {case.id: answered(module, case) for case in asked}

    found = compared(module, asked, answers, mine)

    assert any(one.kind == "fit" for one in found.differences)


def test_a_difference_is_reported_with_its_node_only(module, asked, answers):
    theirs, case = copy.deepcopy(answers), asked[0]
    theirs[case.id]["node-3"] = [*theirs[case.id]["node-3"], "unheard of"]

    (one,) = compared(module, asked, theirs, answers).differences
    *remarks, question = module("nodes.comparison").as_lines([one]).strip().splitlines()

    assert remarks[0].startswith(f"# {case.id}, node-3")
    assert [node["metadata"]["name"] for node in json.loads(question)["nodes"]] == ["node-3"]


def test_a_reported_cordon_makes_its_taint_redundant(module, asked, answers):
    theirs, case = copy.deepcopy(answers), asked[0]
    mine = copy.deepcopy(answers)
    theirs[case.id]["node-3"], mine[case.id]["node-3"] = (
        ["unschedulable", "taints"],
        ["unschedulable"],
    )
    assert not compared(module, asked, theirs, mine).differences
    theirs[case.id]["node-3"], mine[case.id]["node-3"] = ["taints"], []
    assert [one.kind for one in compared(module, asked, theirs, mine).differences] == ["fit"]


def test_the_summary_counts_cases(module, asked, answers):
    theirs, case = copy.deepcopy(answers), asked[0]
    for node in ("node-1", "node-2"):
        theirs[case.id][node] = ["unheard of"]
    text = module("nodes.comparison").as_text(compared(module, asked, theirs, answers), "title")
    assert text.endswith(f"title: {CASES - 1} cases agree, 1 differ")


def test_a_predicate_that_decides_too_little_of_a_full_run_fails_it(module, asked, answers, capsys):
    found = compared(module, asked, answers, answers)
    full = dataclasses.replace(found, cases=1_000)
    code = module("compare_nodes")._code

    assert code(found) == 0
    assert code(full) == 1
    assert "alone decides" in capsys.readouterr().err


def test_the_plugins_are_built_from_the_control_planes_module(module):
    building = module("building")
    for minor in building.MINORS:
        program = building.node_fit_of(minor)
        assert (program.module / program.package / "main.go").exists()
        assert program.version.startswith(f"{minor}.")
