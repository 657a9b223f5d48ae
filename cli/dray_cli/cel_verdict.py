"""What a server says to a selector, in a new object or in a stored one."""

from dataclasses import dataclass

from dray.cel.admission import Verdict, admission, kubernetes_words
from dray.cel.environment import Environment, Mode, environment
from dray.cel.errors import CelCompileError
from dray.cel.evaluate import Program, compile
from dray.domain.errors import InvalidInputError

DEFAULT_VERSION = "1.36"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a server says to an expression in one kind of object."""

    verdict: Verdict
    error: str = ""
    """Why it is refused, in Kubernetes' words."""
    program: Program | None = None
    """None where it does not compile."""


def judge(expression: str, version: str, mode: Mode) -> Judgement:
    """What a server of ``version``, such as ``1.36``, says to ``expression``.

    Raises:
        InvalidInputError: ``version`` is none.
    """
    where = language(version, mode)
    if mode is Mode.NEW:
        found = admission(expression, where)
        return Judgement(found.verdict, found.text, found.program)
    try:
        return Judgement("ok", "", compile(expression, where))
    except CelCompileError as error:
        return Judgement("compile-error", kubernetes_words(error))


def language(version: str, mode: Mode) -> Environment:
    """The language of a server of ``version``.

    Raises:
        InvalidInputError: ``version`` is none.
    """
    try:
        return environment(version, mode)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None
