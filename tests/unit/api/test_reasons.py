"""Reasons, as people read them."""

import pytest

from dray.reasons import Nearest, Reason, in_words


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            Reason(
                "capacity",
                "not enough free vram (8Gi asked)",
                2,
                3,
                detail="",
                nearest=Nearest("n/g", "4Gi"),
            ),
            "not enough free vram (8Gi asked): 2 of 3 devices; nearest: n/g has 4Gi",
        ),
        (
            Reason("node", "node taint t=p:NoSchedule", 1, 1, "node", nearest=Nearest("sim-1")),
            "node taint t=p:NoSchedule: 1 of 1 node",
        ),
        (
            Reason("clause-error", "has(x)", 1, 2, detail="no such key: x"),
            "has(x) can't be evaluated: 1 of 2 devices (no such key: x)",
        ),
    ],
)
def test_the_nearest_miss_is_named_where_it_has_something_to_show(
    reason: Reason, text: str
) -> None:
    assert str(reason) == text


@pytest.mark.parametrize(
    ("room_bytes", "expected"),
    [
        (300, ["a", "b", "c", "together"]),
        (60, ["a", "… and 2 more", "together"]),
        (40, ["… and 3 more", "together"]),
        (32, ["a", "… and 3 more"]),
        (20, ["… and 4 more"]),
        (3, []),
    ],
)
def test_reasons_for_which_there_is_no_room_are_counted_and_the_last_one_stays(
    room_bytes: int, expected: list[str]
) -> None:
    """It is what a pod waits for where each of its requests alone could be met."""
    reasons = [Reason("node", what, 1, 1, "node") for what in ("a", "b", "c", "together")]
    lines = [line.partition(":")[0] for line in in_words(reasons, room_bytes).splitlines()]
    assert lines == expected
