"""Selectors that Kubernetes tests its own compiler with come out here as there."""

from typing import Any

import pytest
from tests.unit.cel.upstream_cases import CASES

from dray.cel.device import view_from_json
from dray.cel.environment import environment
from dray.cel.errors import CelCompileError
from dray.cel.eval.program import compile


def _runs() -> list[Any]:
    return [
        pytest.param(case, minor, lists, id=f"{case.name}, {minor}{', lists' if lists else ''}")
        for case in CASES
        for minor in case.minors
        for lists in ((False, True) if case.lists is None else (case.lists,))
    ]


@pytest.mark.parametrize(("case", "minor", "lists"), _runs())
def test_a_case_of_kubernetes(case, minor, lists):
    where = environment(
        minor,
        "new" if case.new else "stored",
        consumable_capacity=case.sharing,
        list_attributes=lists,
    )
    if isinstance(case.expected, str) and case.expected.startswith("compile: "):
        with pytest.raises(CelCompileError, match=case.expected.removeprefix("compile: ")):
            compile(case.expression, where)
        return
    program = compile(case.expression, where)
    assert program.cost == case.cost_in(minor)
    found = program.evaluate(view_from_json(case.driver, case.device()))
    assert (found.cost or 0) <= program.cost
    if isinstance(case.expected, str):
        assert found.value is None
        assert case.expected in str(found.error)
    else:
        assert (found.value, found.error) == (case.expected, None)


def test_no_case_is_forgotten():
    """69 cases of Kubernetes 1.36, and 70 of 1.37, which dropped two and split others."""
    assert sum("1.36" in case.minors for case in CASES) == 69
    assert sum("1.37" in case.minors for case in CASES) == 70
