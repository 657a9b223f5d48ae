"""The adapter of celpy: conditions of webhooks, policies, and validation rules of CRDs."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import celpy
from celpy import celtypes

from dray.api import json_codec
from dray_sandbox.celpy_environment import celpy_environment


class ExpressionError(Exception):
    """An expression that doesn't parse, or fails on this input."""


@lru_cache(maxsize=256)
def _program(expression: str) -> Any:
    environment = celpy_environment()
    try:
        return environment.program(environment.compile(expression))
    except celpy.CELParseError as error:
        raise ExpressionError(f"compilation failed: {error}") from error


def syntax_error(expression: str) -> str | None:
    """Why an expression can't be parsed; None when it can."""
    try:
        _program(expression)
    except ExpressionError as error:
        return str(error)
    return None


def check(expression: str) -> str | None:
    """Why an expression can't be a condition, or None.

    A real server infers the type of any expression; this one infers only the types of constants.
    """
    try:
        result = _program(expression).evaluate({})
    except ExpressionError as error:
        return str(error)
    except (celpy.CELEvalError, TypeError, ValueError):
        return None
    if isinstance(result, celtypes.BoolType | bool):
        return None
    named = _TYPES.get(type(result).__name__, type(result).__name__)
    return f"must evaluate to bool but got {named}"


_TYPES = {
    "IntType": "int",
    "UintType": "uint",
    "DoubleType": "double",
    "StringType": "string",
    "NoneType": "null_type",
}


def evaluate(expression: str, variables: Mapping[str, Any]) -> bool:
    """The boolean value of an expression over JSON values; `ExpressionError` if it has none."""
    result = value(expression, variables)
    if not isinstance(result, celtypes.BoolType | bool):
        raise ExpressionError(f"the result is not a bool but {type(result).__name__}")
    return bool(result)


def value(expression: str, variables: Mapping[str, Any]) -> Any:
    """celpy's value of an expression over JSON values; `ExpressionError` if it has none. The
    variable `variables` holds the celpy values of other expressions."""
    program = _program(expression)
    activation = {
        # Convert only variables in the expression: large objects are slow to convert.
        name: _composed(given)
        if name == "variables"
        else celpy.json_to_cel(json_codec.abridged(given))
        for name, given in variables.items()
        if name in expression
    }
    try:
        return program.evaluate(activation)
    except (celpy.CELEvalError, TypeError, ValueError) as error:
        raise ExpressionError(f"evaluation failed: {error}") from error


def _composed(values: Mapping[str, Any]) -> celtypes.MapType:
    return celtypes.MapType({celtypes.StringType(name): one for name, one in values.items()})
