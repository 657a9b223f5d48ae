"""The adapter of dray's CEL: validation of new device selectors."""

from typing import Final

from dray.cel.admission import LONGEST_BYTES, admission
from dray.cel.environment import Environment, Mode

from .status import FieldError, forbidden_field, invalid, too_long

_LANGUAGE: Final = Environment(mode=Mode.NEW)


def selector_errors(expression: str, field: str) -> list[FieldError]:
    """Findings about one CEL device selector."""
    found = admission(expression, _LANGUAGE)
    match found.verdict:
        case "ok":
            return []
        case "too-long":
            return [too_long(field, LONGEST_BYTES)]
        case "too-complex":
            return [forbidden_field(field, found.text.removeprefix("Forbidden: "))]
        case _:
            return [invalid(field, expression, found.text)]
