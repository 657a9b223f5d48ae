"""Where dray differs from Kubernetes on purpose. Each entry says why; all else is a bug."""

from collections.abc import Callable
from typing import Any, Final

Answer = dict[str, Any]
Rule = Callable[[str, str, Answer, Answer], bool]
"""Of the expression, the minor version, Kubernetes' answer and dray's."""

INTENDED: Final[dict[str, Rule]] = {}


def reason_for(expression: str, minor: str, theirs: Answer, ours: Answer) -> str:
    """Why the difference is wanted; empty where it is not."""
    for reason, applies in INTENDED.items():
        if applies(expression, minor, theirs, ours):
            return reason
    return ""
