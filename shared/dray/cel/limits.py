"""The limits of one evaluation, after which it is stopped.

Kubernetes limits the *cost* that it counts, and counts it after a function has returned. dray also
limits the *work*, and estimates it in advance (``library/work_steps.py``): no text, list or loop
exceeds the limit.
"""

from typing import Final

COST_LIMIT: Final = 1_000_000
"""``CELSelectorExpressionMaxCost``: the cost beyond which Kubernetes stops an evaluation."""
WORK_LIMIT: Final = 400_000
"""Steps of at most a tenth of a microsecond each: one node evaluated in a loop, one element
visited, or ten characters made.

Kubernetes stops later if much work has a low cost: ``lists.range(100000)`` and a loop over it cost
600 012 there and take seconds. This limit is the only difference in results.
"""


class StoppedError(Exception):
    """Aborts an evaluation: a limit is exceeded, or Kubernetes' evaluator would panic.

    ``||`` and ``&&`` do not swallow it.
    """

    def __init__(self, reason: str = "operation cancelled: actual cost limit exceeded") -> None:
        super().__init__(reason)


def refuse_excess_work(steps: int) -> None:
    """Raise if these steps alone exceed the limit of an evaluation.

    Raises:
        StoppedError: ``steps`` exceeds ``WORK_LIMIT``.
    """
    if steps > WORK_LIMIT:
        raise StoppedError
