"""How requests are rounded to what a shared device admits."""

import pytest

from dray.domain.devices import Capacity, RequestPolicy
from dray_allocator.fit.capacity import admits_whole, consumption

RANGE = RequestPolicy(default="10", minimum="4", maximum="20", step="4")


@pytest.mark.parametrize(
    ("asked", "taken"),
    [("1", "4"), ("4", "4"), ("5", "8"), ("8", "8"), ("17", "20"), ("21", None), (None, "10")],
)
def test_a_range_rounds_up_by_steps_from_its_minimum(asked, taken):
    published = {"m": Capacity("40", RANGE)}
    got = consumption({"m": asked} if asked else {}, published)
    assert (got.text["m"] if got else None) == taken


def test_steps_are_counted_in_whole_units():
    policy = RequestPolicy(default="1", minimum="500m", step="250m")
    got = consumption({"m": "600m"}, {"m": Capacity("4", policy)})
    assert got is not None
    assert got.text["m"] == "1"


@pytest.mark.parametrize(("asked", "taken"), [("1", "2"), ("2", "2"), ("5", "8"), ("9", None)])
def test_valid_values_round_up_to_the_next(asked, taken):
    policy = RequestPolicy(default="2", valid_values=("2", "4", "8"))
    got = consumption({"m": asked}, {"m": Capacity("40", policy)})
    assert (got.text["m"] if got else None) == taken


def test_without_a_policy_what_is_not_asked_for_is_taken_whole():
    got = consumption({}, {"m": Capacity("40Gi")})
    assert got is not None
    assert got.text == {"m": "40Gi"}


def test_keys_equal_the_published_ones_byte_for_byte():
    assert consumption({"driver/m": "1"}, {"m": Capacity("40")}) is None
    assert not admits_whole({"driver/m": "1"}, {"m": Capacity("40")})


def test_a_device_that_is_not_shared_must_be_large_enough():
    assert admits_whole({"m": "40Gi"}, {"m": Capacity("40Gi")})
    assert not admits_whole({"m": "41Gi"}, {"m": Capacity("40Gi")})
