"""Tolerations, attempts and names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.claims import EPOCH_SPAN, first_attempt, last_attempt_before
from dray.api.devices import DeviceId, Taint, Toleration
from dray.api.names import qualified

TAINT = Taint("gpu", "broken", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "broken", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "broken"), True),
        (Toleration("gpu", "", "broken"), True),
        (Toleration("gpu", "Equal", "other"), False),
        (Toleration("gpu", "Equal", "broken", "NoExecute"), False),
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        # An empty key tolerates everything with Exists alone.
        (Toleration("", "Equal", "broken"), False),
        # Operators of later versions are not guessed.
        (Toleration("gpu", "Gt", "broken"), False),
    ],
)
def test_a_toleration_covers_what_kubernetes_says(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates(TAINT) is tolerated


@given(st.integers(1, 10**6), st.integers(0, EPOCH_SPAN - 1))
def test_voiding_what_was_before_an_epoch_voids_all_of_it_and_nothing_of_the_epoch(
    epoch: int, decisions: int
) -> None:
    assert first_attempt(epoch) + decisions > last_attempt_before(epoch)
    assert first_attempt(epoch) + decisions <= last_attempt_before(epoch + 1)


def test_names_are_qualified_by_their_driver() -> None:
    assert qualified("vram") == "tensor-fusion.ai.dra-driver/vram"
    assert qualified("vram", "d") == "d/vram"
    assert qualified("other/vram") == "other/vram"


def test_devices_are_ordered_and_distinguished_by_driver_pool_and_name() -> None:
    ids = [DeviceId("b", "a", "a"), DeviceId("a", "b", "a"), DeviceId("a", "a", "b")]
    assert sorted(ids) == list(reversed(ids))
    assert str(ids[0]) == "b/a/a"
