"""The CEL selectors of a pod: generated from its annotations, or its own expression."""

from dataclasses import dataclass
from functools import lru_cache

from dray.cel.check import check_selector
from dray.cel.errors import CelCompileError
from dray.cel.syntax import parse
from dray.domain.errors import InvalidInputError
from dray.domain.names import DRA_CEL_EXPRESSION
from dray.seed.dialect import Translation, translate
from dray.seed.selector import generated_selector, pool_selector
from dray_webhook.annotations import Asked

LONGEST_EXPRESSION = 10 * 1024
"""Bytes; the API server refuses longer selectors."""


class UnusableExpressionError(InvalidInputError):
    """The pod's own expression can't be used."""


@dataclass(frozen=True, slots=True)
class Selectors:
    """Expressions in the valid dialect, in order, and advice about them."""

    expressions: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def selectors_of(asked: Asked, pool: str) -> Selectors:
    """One generated selector; with an expression of the pod's own, the pool's and that.

    Raises:
        UnusableExpressionError: the expression is no CEL, names something unknown, or needs
            what dray can't evaluate; with position and caret.
    """
    if not asked.expression:
        generated = generated_selector(
            model=asked.model or None,
            pool=pool,
            tflops=asked.tflops,
            vram_bytes=asked.vram.value if asked.vram else None,
            qos=asked.qos or None,
        )
        return Selectors((generated,))
    try:
        custom = _translated(asked.expression)
    except CelCompileError as error:
        raise UnusableExpressionError(
            f"annotation {DRA_CEL_EXPRESSION} can't be used: {error}"
        ) from error
    warnings = tuple(f"{DRA_CEL_EXPRESSION}: {warning}" for warning in custom.warnings)
    return Selectors((pool_selector(pool), custom.expression), warnings)


@lru_cache(maxsize=1024)
def _translated(expression: str) -> Translation:
    """The valid form. Pods of one Deployment repeat theirs, and translating takes milliseconds.

    Raises:
        CelCompileError: the expression can't be used.
        UnusableExpressionError: its valid form is too long.
    """
    custom = translate(expression)
    size = len(custom.expression.encode())
    if size > LONGEST_EXPRESSION:
        raise UnusableExpressionError(
            f"annotation {DRA_CEL_EXPRESSION} becomes a selector of {size} bytes: "
            f"expected {LONGEST_EXPRESSION} at most"
        )
    check(custom.expression)
    return custom


@lru_cache(maxsize=1024)
def check(expression: str) -> None:
    """Check that dray can evaluate a selector. Raises CelCompileError."""
    check_selector(parse(expression), expression)
