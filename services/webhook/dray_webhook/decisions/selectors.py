"""The CEL selectors of a pod: generated from its annotations, or its own expression."""

from dataclasses import dataclass
from functools import lru_cache

from dray.api.errors import InvalidInputError
from dray.api.names import DRA_CEL_EXPRESSION
from dray.cel.admission import LONGEST_BYTES, MOST_COST, admission, kubernetes_words
from dray.cel.environment import Environment
from dray.cel.errors import CelCompileError
from dray.user_guide_form.dialect import Translation, translate
from dray.user_guide_form.rewriter import UserGuideDialectError
from dray.user_guide_form.selector import generated_selector, pool_selector
from dray_webhook.decisions.annotations import GpuRequest


class UnusableExpressionError(InvalidInputError):
    """The pod's expression can't be used."""


@dataclass(frozen=True, slots=True)
class PodSelectors:
    """Expressions in the valid dialect, in order, and advice about them."""

    expressions: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def selectors_of(asked: GpuRequest, pool: str, environment: Environment) -> PodSelectors:
    """One generated selector. If the pod has an expression: the pool's selector and the expression.

    ``environment`` is the server's, for new expressions.

    Raises:
        UnusableExpressionError: the expression names something that devices don't have, or the
            server would refuse it; the text is the server's, with position and caret.
    """
    if not asked.expression:
        generated = generated_selector(
            model=asked.model or None,
            pool=pool,
            tflops=asked.tflops,
            vram_bytes=asked.vram.value if asked.vram else None,
            qos=asked.qos or None,
        )
        return PodSelectors((generated,))
    custom = _translated(asked.expression, environment)
    warnings = tuple(f"{DRA_CEL_EXPRESSION}: {warning}" for warning in custom.warnings)
    return PodSelectors((pool_selector(pool), custom.expression), warnings)


@lru_cache(maxsize=1024)
def _translated(expression: str, environment: Environment) -> Translation:
    """The valid form. Cached, because pods of a Deployment repeat their expression, and translation
    takes milliseconds.

    Raises:
        UnusableExpressionError: as ``selectors_of``.
    """
    if len(expression.encode()) > LONGEST_BYTES:
        raise _unusable(refusal(expression, environment))
    try:
        custom = translate(expression, environment)
    except UserGuideDialectError as error:
        raise _unusable(str(error)) from error
    except CelCompileError as error:
        raise _unusable(kubernetes_words(error)) from error
    if why := refusal(custom.expression, environment):
        raise _unusable(f"in Kubernetes' dialect it is refused: {why}" if custom.changes else why)
    return custom


def _unusable(why: str) -> UnusableExpressionError:
    return UnusableExpressionError(f"annotation {DRA_CEL_EXPRESSION} can't be used: {why}")


@lru_cache(maxsize=1024)
def refusal(expression: str, environment: Environment) -> str:
    """Why the server would refuse a selector, in its words; empty if it would not."""
    found = admission(expression, environment)
    if found.verdict == "too-long":
        return f"{found.text}; it has {len(expression.encode())}"
    if found.verdict == "too-complex" and found.program:
        return f"{found.text}; it is estimated at {found.program.cost}, the most is {MOST_COST}"
    return found.text
