"""Where dray differs from Kubernetes on purpose. Each entry says why; all else is a bug."""

import re
from collections.abc import Callable
from typing import Any, Final

Answer = dict[str, Any]
Rule = Callable[[dict[str, Any], Answer, Answer], bool]
"""Of the question, Kubernetes' answer and dray's."""

COST_LIMIT: Final = 1_000_000
_CHANGES_QUANTITIES: Final = re.compile(r"\.(?:add|sub)\(")
_AMOUNT: Final = re.compile(r"[0-9]+\.[0-9]+[KMGTPE]i|[0-9]{18,}")
"""Amounts that Kubernetes holds as big decimals: binary fractions, and more than 18 digits."""


def _stopped_by_work(question: dict[str, Any], theirs: Answer, ours: Answer) -> bool:
    """dray says that the limit is exceeded, and the cost alone does not exceed it."""
    cost = ours.get("actual_cost")
    return (
        "actual cost limit exceeded" in (ours.get("eval_error") or "")
        and cost is not None
        and cost <= COST_LIMIT
    )


def _changed_operand(question: dict[str, Any], theirs: Answer, ours: Answer) -> bool:
    """``add`` or ``sub`` on an amount that is read again."""
    amounts = [str(held.get("value")) for held in question["device"].get("capacity", {}).values()]
    expression = question["expression"]
    return bool(_CHANGES_QUANTITIES.search(expression)) and any(
        map(_AMOUNT.search, [expression, *amounts])
    )


INTENDED: Final[dict[str, Rule]] = {
    "dray also limits the work, where Kubernetes counts little cost for much of it "
    "(lists.range(100000).all(i, i >= 0) takes a minute there)": _stopped_by_work,
    "Kubernetes' add and sub change the operand itself where it is held as a big decimal, even the "
    "capacity of the device in the scheduler's cache": _changed_operand,
}


def reason_for(question: dict[str, Any], theirs: Answer, ours: Answer) -> str:
    """Why the difference is wanted; empty if it is not."""
    for reason, applies in INTENDED.items():
        if applies(question, theirs, ours):
            return reason
    return ""
