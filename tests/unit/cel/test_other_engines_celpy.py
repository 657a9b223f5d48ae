"""The standard subset of CEL against celpy, an engine that is not ours.

celpy is wrong or silent on what is left out here: comparisons of unlike numbers, optionals,
bindings and the Kubernetes libraries; and an error inside ``exists_one``, which it raises
through an ``&&`` that another term already decides.
"""

import sys

import pytest
from celpy import CELParseError
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.cel.errors import CelCompileError, CelEvaluationError
from dray.cel.eval.program import compile
from dray.cel.view import DeviceView
from dray_sandbox.celpy_environment import celpy_environment

DRIVER = "d.example.com"
ATTRIBUTES = {"model": "A100", "count": 7, "ecc": True}
DEVICE = DeviceView(DRIVER, ATTRIBUTES)
ACTIVATION = {"device": json_to_cel({"driver": DRIVER, "attributes": {DRIVER: ATTRIBUTES}})}
A = f'device.attributes["{DRIVER}"]'

INTS = st.sampled_from(["0", "1", "-3", "7", f"{A}.count", f"{A}.nope", "size([1, 2])"])
STRINGS = st.sampled_from(['"A100"', '""', "'b'", f"{A}.model", f'{A}["nope"]', "device.driver"])
BOOLS = st.sampled_from(["true", "false", f"{A}.ecc", f"has({A}.count)", f"has({A}.nope)"])


def _ints(inner):
    return st.tuples(inner, st.sampled_from("+-*/%"), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    )


NUMBERS = st.recursive(INTS, _ints, max_leaves=3)
COMPARISONS = st.one_of(
    st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS).map(" ".join),
    st.tuples(STRINGS, st.sampled_from(["==", "!=", "<"]), STRINGS).map(" ".join),
    st.tuples(STRINGS, st.sampled_from(["startsWith", "endsWith", "contains"]), STRINGS).map(
        lambda t: f"{t[0]}.{t[1]}({t[2]})"
    ),
    STRINGS.map(lambda text: f'{text}.matches("^[A-Z][0-9]+$")'),
    NUMBERS.map(lambda number: f"{number} in [1, 7]"),
    st.tuples(NUMBERS, st.sampled_from(["all", "exists"])).map(
        lambda t: f"[1, 2, 7].{t[1]}(x, x > {t[0]})"
    ),
    BOOLS,
)


def _conditions(inner):
    return st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda text: f"!({text})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
    )


ENVIRONMENT = celpy_environment()


def test_an_environment_of_celpy_leaves_the_recursion_limit_alone():
    limit = sys.getrecursionlimit()
    celpy_environment()
    assert sys.getrecursionlimit() == limit


def _celpy(text):
    program = ENVIRONMENT.program(ENVIRONMENT.compile(text))
    try:
        return bool(program.evaluate(ACTIVATION))
    except CELEvalError:
        return None


def _ours(text):
    try:
        return compile(text).matches(DEVICE)
    except CelEvaluationError:
        return None


@settings(max_examples=50, deadline=None)
@given(st.recursive(COMPARISONS, _conditions, max_leaves=4))
def test_both_engines_agree(text):
    assert _ours(text) == _celpy(text)


RIGHT_IS_OURS = {
    "1 <= 1.5": (True, None),
    f"{A}.count == 7.0": (True, None),
    "[1, 2].map(x, x > 1, x).size() == 1": (True, ValueError),
    "[1, 2].exists(i, v, i == v)": (False, ValueError),
    f"{A}.?nope.orValue(1) == 1": (True, CELParseError),
    "optional.of([7])[?3].hasValue()": (False, CELParseError),
    "cel.bind(x, 1, x == 1)": (True, None),
    "'a,b'.split(',').size() == 2": (True, None),
    "'%s'.format(['a']) == 'a'": (True, None),
    "[0, 1].exists_one(i, 1 / i == 1)": (None, None),
    "[0, 1].exists_one(i, 1 / i == 1) && false": (False, None),
    "has(device.attributes.k)": (True, False),
    "string(1.0) == '1'": (True, False),
    "{1: 2, 1: 3} == {1: 3}": (True, None),
    "[1][dyn(0.0)] == 1": (True, None),
    r"""'\?' == '?'""": (True, False),
}
"""Expression: what Kubernetes gives, what celpy gives. None is an error. Kubernetes is right by
definition; the cases are those of CEL's specification, too, but for the last two lines' keys."""

REFUSED_BY_OURS = {
    "1 == 1u || true": "no matching overload",
    "'a' == 1": "no matching overload",
    "1 in [1.0, 3.0]": "no matching overload",
    "[1, 'a'].size() == 2": "expected type 'int' but found 'string'",
    "dyn(true)": "must evaluate to bool",
    "duration('1d') == duration('24h')": "invalid duration argument",
    "string(1e400) == '+Inf'": "invalid double literal",
    "int('x') == 1 || true": "type conversion error",
    "int('0x10') == 16": "type conversion error",
    "1 - 2u == 0": "no matching overload",
    "'a'.matches('(')": "invalid matches argument",
}
"""Kubernetes checks before it evaluates, and celpy does not."""


@pytest.mark.parametrize("text", RIGHT_IS_OURS)
def test_where_celpy_is_wrong_ours_is_as_kubernetes(text):
    right, theirs = RIGHT_IS_OURS[text]
    assert _ours(text) is right
    if isinstance(theirs, type):
        with pytest.raises(theirs):
            _celpy(text)
    else:
        assert _celpy(text) is theirs


@pytest.mark.parametrize("text", REFUSED_BY_OURS)
def test_where_celpy_has_no_static_check_ours_refuses_as_kubernetes_does(text):
    with pytest.raises(CelCompileError, match=REFUSED_BY_OURS[text]):
        compile(text)
