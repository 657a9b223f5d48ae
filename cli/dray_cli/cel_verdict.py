"""Whether an API server accepts a selector, in a new object or in a stored one."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dray.api.errors import InvalidInputError
from dray.cel.admission import Verdict, admission, kubernetes_words
from dray.cel.environment import Environment, Mode, environment
from dray.cel.errors import CelCompileError
from dray.cel.eval.program import Program, compile

DEFAULT_VERSION = "1.36"
Gates = Mapping[str, bool]
"""Feature gates that differ from the version's defaults."""
_NO_GATES: Final[Gates] = MappingProxyType({})
_GATES = {
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAListTypeAttributes": "list_attributes",
}
"""Feature gates that change the language."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """An API server's verdict on an expression, in a new object or in a stored one."""

    verdict: Verdict
    error: str = ""
    """Why it is refused, in Kubernetes' words."""
    program: Program | None = None
    """None if it does not compile."""


def judge(expression: str, version: str, mode: Mode, gates: Gates = _NO_GATES) -> Judgement:
    """The verdict on ``expression`` of an API server of ``version``, such as ``1.36``.

    Raises:
        InvalidInputError: ``version`` is not a version, or a gate does not change the language.
    """
    where = language(version, mode, gates)
    if mode is Mode.NEW:
        found = admission(expression, where)
        return Judgement(found.verdict, found.text, found.program)
    try:
        return Judgement("ok", "", compile(expression, where))
    except CelCompileError as error:
        return Judgement("compile-error", kubernetes_words(error))


def language(version: str, mode: Mode, gates: Gates = _NO_GATES) -> Environment:
    """The language of an API server of ``version``.

    Raises:
        InvalidInputError: ``version`` is not a version, or a gate does not change the language.
    """
    if unknown := [name for name in gates if name not in _GATES]:
        raise InvalidInputError(
            f"{unknown[0]!r} is not a feature gate that changes the language; "
            f"those that do: {', '.join(_GATES)}"
        )
    try:
        return environment(version, mode, **{_GATES[name]: on for name, on in gates.items()})
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


def feature_gates(text: str) -> dict[str, bool]:
    """Gates in the form that Kubernetes' programs accept: ``A=true,B=false``.

    Raises:
        ValueError: ``text`` is not in this form.
    """
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or value not in ("true", "false"):
            raise ValueError(f"{part!r} is not written like DRAListTypeAttributes=true")
        found[name] = value == "true"
    return found
