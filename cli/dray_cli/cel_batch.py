"""``dray cel eval --batch``: answers about selectors and devices, one JSON line each."""

from collections.abc import Iterable, Iterator
from typing import Any

from dray.api.errors import InvalidInputError
from dray.cel.device import view_from_json
from dray.cel.environment import Mode
from dray.cel.view import DeviceView
from dray_cli import json_lines
from dray_cli.cel_verdict import DEFAULT_VERSION, judge
from dray_cli.json_lines import Answer


def answers(lines: Iterable[bytes]) -> Iterator[Answer]:
    """The answer to each line that is not blank, in order, as soon as the line is read."""
    return json_lines.answers(lines, answer)


def answer(question: dict[str, Any]) -> Answer:
    """What Kubernetes answers to one expression about one device, with the protocol's keys.

    Raises:
        InvalidInputError: a field is missing or of the wrong type.
    """
    expression: str = _field(question, "expression", str)
    version: str = _field(question, "k8s", str, DEFAULT_VERSION)
    view = _view(question)
    gates: dict[str, bool] = _field(question, "featureGates", dict, {})
    new = judge(expression, version, Mode.NEW, gates)
    stored = judge(expression, version, Mode.STORED, gates)
    found = stored.program.evaluate(view) if stored.program is not None else None
    return {
        "compile_error": stored.error or None,
        "admission": new.verdict,
        "admission_error": new.error or None,
        "result": found.value if found else None,
        "eval_error": str(found.error) if found and found.error else None,
        "cost": stored.program.cost if stored.program is not None else None,
        "actual_cost": found.cost if found else None,
    }


def _view(question: dict[str, Any]) -> DeviceView:
    driver: str = _field(question, "driver", str, "")
    return view_from_json(driver, _field(question, "device", dict, {}))


def _field(within: dict[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    value = within.get(name)
    if value is None and default is not ...:
        return default
    if isinstance(value, kind):
        return value
    seen = "missing" if value is None else f"{type(value).__name__}"
    raise InvalidInputError(f"{name} is {seen}, expected {kind.__name__}")
