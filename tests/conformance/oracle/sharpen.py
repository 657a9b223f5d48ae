"""The value that dray computes for an expression, written as a literal.

A condition ``X == literal`` tells more of X than any other: where dray computes X wrongly, it is
true for dray and false for Kubernetes.
"""

import json
from typing import Any

from dray.cel.check.static_check import check_selector
from dray.cel.device import view_from_json
from dray.cel.environment import Mode, environment
from dray.cel.eval.closures import compiler_of
from dray.cel.eval.frame import Frame
from dray.cel.library.values import BoolKey, Uint
from dray.cel.syntax.parser import parse

_ANY_RESULT = environment("1.37", Mode.STORED)
"""There, a selector may be of type dyn; only for reading the value."""


def literal_of(expression: str, driver: str, device: dict[str, Any]) -> str | None:
    """A literal equal to what ``expression`` gives on the device; None if there is none."""
    source = f"dyn({expression})"
    try:
        checked = check_selector(parse(source), source, _ANY_RESULT)
        compiler = compiler_of(checked)
        closure = compiler.closure(checked.root, compiler.scope)
        view = view_from_json(driver, device)
        return _written(closure(Frame(view, compiler.scope.slots)))
    except Exception:  # noqa: BLE001 - only a hint; dray's faults show in the comparison
        return None


def _written(value: Any) -> str | None:
    if isinstance(value, BoolKey):
        value = value.value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Uint):
        return f"{int(value)}u"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if abs(value) < float("inf") else None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
    if isinstance(value, (list, tuple)):
        items = [_written(item) for item in value]
        return None if None in items else f"[{', '.join(filter(None, items))}]"
    if isinstance(value, dict):
        entries = [(_written(key), _written(item)) for key, item in value.items()]
        return None if _incomplete(entries) else "{" + ", ".join(map(": ".join, entries)) + "}"
    return None


def _incomplete(entries: list[Any]) -> bool:
    return any(None in entry for entry in entries)


def _text(value: str) -> str:
    return '"' + "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in value) + '"'
