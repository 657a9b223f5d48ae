"""What a request takes of a device: one rule for all that the allocator decides."""

import pytest

from dray.api import names
from dray.api.claims import DeviceRequest
from dray.api.devices import Capacity, Device, DeviceId, RequestPolicy
from dray_allocator.devices.device_requests import needed
from dray_allocator.devices.published_devices import Card, shape_of

RANGE = RequestPolicy(default="10", minimum="4", maximum="20", step="4")
FRACTIONS = RequestPolicy(default="1", minimum="500m", step="250m")


def taken(asked, capacity, *, is_shared=True, name="m"):
    """What a request for ``asked`` of ``name`` takes of a device with one capacity, m."""
    device = Device("gpu", {}, {"m": capacity}, allow_multiple_allocations=is_shared)
    request = DeviceRequest("r", "class", capacity={} if asked is None else {name: asked})
    found = needed(
        request, Card(DeviceId(names.DRIVER, "p", "gpu"), device, node="n", shape=shape_of(device))
    )
    return None if found is None else dict(found.text)


@pytest.mark.parametrize(
    ("asked", "amount"),
    [("1", "4"), ("4", "4"), ("5", "8"), ("8", "8"), ("17", "20"), ("21", None), (None, "10")],
)
def test_a_range_rounds_up_by_steps_from_its_minimum(asked, amount):
    assert taken(asked, Capacity("40", RANGE)) == (None if amount is None else {"m": amount})


@pytest.mark.parametrize(
    ("asked", "amount"), [("100m", "500m"), ("600m", "750m"), ("750m", "750m"), ("1", "1")]
)
def test_steps_are_counted_in_thousandths_where_the_range_is(asked, amount):
    """As Kubernetes does from 1.37 on; before, it rounded to whole units."""
    assert taken(asked, Capacity("4", FRACTIONS)) == {"m": amount}


@pytest.mark.parametrize(("asked", "amount"), [("1", "2"), ("2", "2"), ("5", "8"), ("9", None)])
def test_valid_values_round_up_to_the_next(asked, amount):
    policy = RequestPolicy(default="2", valid_values=("2", "4", "8"))
    assert taken(asked, Capacity("40", policy)) == (None if amount is None else {"m": amount})


def test_without_a_policy_what_is_not_asked_for_is_taken_whole():
    assert taken(None, Capacity("40Gi")) == {"m": "40Gi"}


def test_an_amount_is_written_as_kubernetes_writes_it():
    assert taken("16384Mi", Capacity("40Gi")) == {"m": "16Gi"}


@pytest.mark.parametrize("is_shared", [True, False])
def test_keys_equal_the_published_ones_byte_for_byte(is_shared):
    assert taken("1", Capacity("40"), is_shared=is_shared, name="driver/m") is None


def test_an_amount_that_kubernetes_refuses_to_count_with_fits_nowhere():
    assert taken("9e18", Capacity("1e19", RANGE)) is None


def test_a_device_that_is_not_shared_must_be_large_enough():
    assert taken("40Gi", Capacity("40Gi"), is_shared=False) == {}
    assert taken("41Gi", Capacity("40Gi"), is_shared=False) is None
