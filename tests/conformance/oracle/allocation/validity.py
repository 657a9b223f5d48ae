"""Whether an allocation obeys the rules, found out without searching for one."""

from typing import Any

Json = dict[str, Any]


def faults(question: Json, answer: Json) -> list[str]:
    """What is wrong with ``answer``; empty where it is valid."""
    return []
