"""What requests take of capacities, and who may share a device."""

import pytest

from dray.api.quantities import parse_quantity
from dray_allocator.devices.errors import AllocationError


def consumed(found):
    """What the only device of the only claim consumes; None if it does not fit."""
    return found and {
        name: parse_quantity(amount) for name, amount in found[0].devices[0].consumed.items()
    }


def amounts(**written):
    """Quantities by name."""
    return {name: parse_quantity(amount) for name, amount in written.items()}


def test_what_is_not_asked_for_and_has_no_default_is_taken_whole(cluster):
    cluster.publish(cluster.device("a", shared=True, capacity={"m": "10", "n": "4"}))
    one, two = (
        cluster.claim(cluster.request(capacity={"m": "1"}), name=name) for name in ("one", "two")
    )
    assert consumed(cluster.allocate(one)) == amounts(m="1", n="4")
    assert cluster.fit(one, two) is None


def test_a_default_is_what_a_request_takes_that_says_nothing(cluster):
    policy = cluster.policy(default="2", valid_values=("2", "4"))
    cluster.publish(cluster.device("a", shared=True, capacity={"m": ("5", policy)}))
    claims = [cluster.claim(cluster.request(), name=name) for name in "abc"]
    assert consumed(cluster.allocate(claims[0])) == amounts(m="2")
    assert cluster.fit(*claims[:2]) == [["r=a"], ["r=a"]]
    assert cluster.fit(*claims) is None


def test_a_device_that_is_not_shared_must_be_large_enough_and_consumes_nothing(cluster):
    cluster.publish(
        cluster.device("a", capacity={"m": "1"}), cluster.device("b", capacity={"m": "3"})
    )
    (found,) = cluster.allocate(cluster.claim(cluster.request(capacity={"m": "2"})))
    assert [(device.id.device, device.consumed) for device in found.devices] == [("b", {})]


def test_the_name_of_a_capacity_counts_as_it_is_published(cluster):
    cluster.publish(cluster.device("a", shared=True, capacity={"m": "1"}))
    for name, fits in (("m", True), ("d.x/m", False), ("other", False)):
        ask = cluster.claim(cluster.request(capacity={name: "1"}))
        assert (cluster.fit(ask) is not None) == fits


RANGE = {"default": "1", "minimum": "500m", "step": "250m"}


@pytest.mark.parametrize(
    ("version", "asked", "taken"),
    [
        ("1.36", "600m", "1"),
        ("1.37", "600m", "750m"),
        ("1.36", "100m", "500m"),
        ("1.36", "1500m", "2"),
        ("1.37", "1500m", "1500m"),
    ],
)
def test_a_range_rounds_up_in_whole_units_until_1_37(cluster, version, asked, taken):
    device = cluster.device("a", shared=True, capacity={"m": ("4", cluster.policy(**RANGE))})
    ask = cluster.claim(cluster.request(capacity={"m": asked}))
    assert consumed(cluster.publish(device).on(version).allocate(ask)) == amounts(m=taken)


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        ({"valid_values": ("2", "4", "8")}, "3", "4"),
        ({"valid_values": ("2", "4", "8")}, "9", None),
        ({"minimum": "4"}, "1", "4"),
        ({"minimum": "4"}, "5", "5"),
        ({"minimum": "4", "maximum": "9", "step": "4"}, "5", "8"),
        ({"minimum": "4", "maximum": "9", "step": "4"}, "9", None),
        ({"minimum": "4", "maximum": "9"}, "9", "9"),
        ({"minimum": "4", "maximum": "9"}, "10", None),
        ({}, "7", "7"),
    ],
)
def test_a_policy_rounds_up_to_what_it_admits(cluster, policy, asked, taken):
    limits = cluster.policy(default="4", **policy)
    cluster.publish(cluster.device("a", shared=True, capacity={"m": ("40", limits)}))
    found = cluster.allocate(cluster.claim(cluster.request(capacity={"m": asked})))
    assert consumed(found) == (amounts(m=taken) if taken else None)


@pytest.mark.parametrize(
    ("asked", "fits"), [("3Gi", True), ("3072Mi", False), (None, True), ("2Gi", True)]
)
def test_a_default_outside_the_policy_is_admitted_as_it_is_written(cluster, asked, fits):
    policy = cluster.policy(default="3Gi", minimum="1Gi", maximum="2Gi")
    cluster.publish(cluster.device("a", shared=True, capacity={"m": ("8Gi", policy)}))
    ask = cluster.claim(cluster.request(capacity={"m": asked} if asked else {}))
    assert (cluster.fit(ask) is not None) == fits


def test_two_requests_share_a_device_but_one_does_not_take_it_twice(cluster):
    cluster.publish(cluster.device("a", shared=True))
    both = cluster.claim(cluster.request("r"), cluster.request("s"))
    assert cluster.fit(both) == [["r=a", "s=a"]]
    twice = cluster.claim(cluster.request(count=2))
    assert cluster.fit(twice) is None
    shares = {one.share_id for one in cluster.allocate(both)[0].devices}
    assert len(shares) == 2


def test_a_shared_device_that_is_held_without_share_is_wholly_in_use(cluster):
    cluster.publish(cluster.device("a", shared=True, capacity={"m": "4"})).hold("a")
    assert cluster.fit(cluster.claim(cluster.request(capacity={"m": "1"}))) is None


def test_a_share_that_consumes_nothing_costs_nothing(cluster):
    cluster.publish(cluster.device("a", shared=True, capacity={"m": "4"}))
    ask = cluster.claim(cluster.request(capacity={"m": "4"}))
    assert cluster.hold("a", share_id="share").fit(ask) == [["r=a"]]
    assert cluster.hold("a", share_id="share", consumed={"m": "1"}).fit(ask) is None


def test_shares_are_whole_devices_where_capacity_is_not_consumable(cluster):
    cluster.publish(cluster.device("a", shared=True)).hold("a", share_id="share")
    ask = cluster.claim(cluster.request())
    assert cluster.fit(ask) == [["r=a"]]
    assert cluster.on("1.36", without="DRAConsumableCapacity").fit(ask) is None


@pytest.mark.parametrize(("version", "fits"), [("1.36", True), ("1.37", False)])
def test_mode_all_leaves_out_a_device_with_too_little_left_until_1_37(cluster, version, fits):
    for name in "ab":
        cluster.publish(cluster.device(name, shared=True, capacity={"m": "4"}), pool=name)
    cluster.hold("a", pool="a", share_id="share", consumed={"m": "3"})
    ask = cluster.claim(cluster.request(mode="All", capacity={"m": "2"}))
    assert cluster.on(version).fit(ask) == ([["r=b"]] if fits else None)


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_mode_all_leaves_out_a_device_that_never_was_large_enough(cluster, version):
    cluster.publish(
        cluster.device("a", shared=True, capacity={"m": "1"}),
        cluster.device("b", shared=True, capacity={"m": "4"}),
    )
    ask = cluster.claim(cluster.request(mode="All", capacity={"m": "2"}))
    assert cluster.on(version).fit(ask) == [["r=b"]]


def test_a_negative_amount_is_reckoned_with_until_1_37_and_then_an_error(cluster):
    cluster.publish(cluster.device("a", shared=True, capacity={"m": "4"}))
    ask = cluster.claim(cluster.request(capacity={"m": "-1"}))
    assert consumed(cluster.allocate(ask)) == amounts(m="-1")
    with pytest.raises(AllocationError, match="capacity value is negative: -1"):
        cluster.on("1.37").allocate(ask)


def test_a_range_beyond_64_bits_is_an_error_from_1_37(cluster):
    policy = cluster.policy(default="1", minimum="1", step="2")
    cluster.publish(cluster.device("a", shared=True, capacity={"m": ("1e30", policy)}))
    ask = cluster.claim(cluster.request(capacity={"m": "1e20"}))
    with pytest.raises(AllocationError, match="cannot be represented"):
        cluster.on("1.37").allocate(ask)


def test_a_step_of_zero_is_an_error_and_no_crash(cluster):
    policy = cluster.policy(default="1", minimum="1", step="0")
    cluster.publish(cluster.device("a", shared=True, capacity={"m": ("4", policy)}))
    with pytest.raises(AllocationError, match="step of its valid range is zero"):
        cluster.allocate(cluster.claim(cluster.request(capacity={"m": "2"})))
