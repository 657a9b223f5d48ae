"""Reasons, as people read them."""

import pytest

from dray.reasons import Nearest, Reason, in_words


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            Reason("capacity", "free vram ≥ 8Gi", 2, 3, detail="", nearest=Nearest("n/g", "4Gi")),
            "free vram ≥ 8Gi: fails on 2 of 3 devices; nearest: n/g has 4Gi",
        ),
        (
            Reason("node", "node taint t=p:NoSchedule", 1, 1, "node", nearest=Nearest("sim-1")),
            "node taint t=p:NoSchedule: fails on 1 of 1 node",
        ),
        (
            Reason("clause-error", "has(x)", 1, 2, detail="no such key: x"),
            "has(x): fails on 1 of 2 devices (no such key: x)",
        ),
    ],
)
def test_the_nearest_miss_is_named_where_it_has_something_to_show(
    reason: Reason, text: str
) -> None:
    assert str(reason) == text


def test_lines_that_are_too_long_together_are_left_out_whole() -> None:
    reason = Reason("node", "node ready", 1, 1, "node")

    assert in_words([reason, reason], len(str(reason)) + 1) == str(reason)
