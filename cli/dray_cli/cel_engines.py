"""The evaluators of ``dray cel eval``: dray's own, and celpy to compare with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dray.api.errors import InvalidInputError
from dray.cel.environment import Mode
from dray.cel.errors import CelEvaluationError
from dray.cel.eval.program import ClauseResult, compile
from dray_cli.cel_slices import SliceDevice
from dray_cli.cel_verdict import Gates, language


@dataclass(frozen=True, slots=True)
class EngineFinding:
    """The result of an expression on one device."""

    result: bool | None
    """None if evaluation failed."""
    error: str = ""
    clauses: tuple[ClauseResult, ...] = ()
    cost: int | None = None


Evaluator = Callable[[SliceDevice], EngineFinding]


def _dray(expression: str, version: str, gates: Gates) -> Evaluator:
    program = compile(expression, language(version, Mode.STORED, gates))

    def evaluate(candidate: SliceDevice) -> EngineFinding:
        view = candidate.view()
        found = program.evaluate(view)
        error = str(found.error) if found.error else ""
        return EngineFinding(found.value, error, tuple(program.explain(view)), found.cost)

    return evaluate


def _celpy(expression: str, version: str, gates: Gates) -> Evaluator:
    try:
        import celpy  # imported here: this takes as long as all other imports together
    except ImportError:
        raise InvalidInputError("there is no celpy here: install dray's sandbox extra") from None
    from celpy.adapter import json_to_cel
    from celpy.evaluation import CELEvalError

    from dray_sandbox.celpy_environment import celpy_environment

    environment = celpy_environment()
    try:
        program = environment.program(environment.compile(expression))
    except celpy.CELParseError as error:
        raise InvalidInputError(f"celpy can't read the expression: {error}") from None

    def evaluate(candidate: SliceDevice) -> EngineFinding:
        activation = {"device": json_to_cel(_as_celpy(candidate))}
        try:
            result = program.evaluate(activation)
        except (CELEvalError, ValueError, TypeError) as error:
            return EngineFinding(None, f"celpy: {error.args[0] if error.args else error}")
        if not isinstance(result, (bool, celpy.celtypes.BoolType)):
            return EngineFinding(None, f"celpy: the result is {type(result).__name__}, not bool")
        return EngineFinding(bool(result))

    return evaluate


def _as_celpy(candidate: SliceDevice) -> dict[str, Any]:
    view = candidate.view()
    try:
        view.check()
    except CelEvaluationError as error:
        raise InvalidInputError(f"{candidate.name}: {error}") from None
    attributes: dict[str, Any] = {candidate.driver: {}}
    for name, value in candidate.device.get("attributes", {}).items():
        domain, slash, short = name.partition("/")
        plain = next(iter(value.values()))
        attributes.setdefault(domain if slash else candidate.driver, {})[short or name] = plain
    return {"driver": candidate.driver, "attributes": attributes}


ENGINES: Final[dict[str, Callable[[str, str, Gates], Evaluator]]] = {"dray": _dray, "celpy": _celpy}
