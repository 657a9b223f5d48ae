"""What nobody should publish or ask for: a clear reason, in bounded time."""

import pytest

from dray_allocator.devices.errors import AllocationError, SearchLimitError


def test_a_slice_without_devices_offers_nothing(cluster):
    cluster.publish()
    assert cluster.fit(cluster.claim(cluster.request())) is None


def test_ten_thousand_devices_are_searched_to_the_last(cluster):
    cluster.publish(*(cluster.device(f"d{n}", attributes={"n": n}) for n in range(10_000)))
    last = cluster.request(selectors=('device.attributes["d.x"].n == 9999',))
    assert cluster.fit(cluster.claim(last)) == [["r=d9999"]]
    with pytest.raises(AllocationError, match="number of requested devices 10000 exceeds"):
        cluster.fit(cluster.claim(cluster.request(mode="All")))


def test_a_pool_that_never_completes_is_never_used(cluster):
    cluster.publish(cluster.device("a"), slice_count=7)
    assert cluster.fit(cluster.claim(cluster.request())) is None
    with pytest.raises(AllocationError, match=r"resource pool d\.x/p is currently being updated"):
        cluster.fit(cluster.claim(cluster.request(mode="All")))


def test_constraints_that_contradict_each_other_do_not_fit(cluster):
    cluster.publish(*(cluster.device(name, attributes={"m": 1, "n": name}) for name in "abc"))
    ask = cluster.claim(cluster.request("r"), cluster.request("s"), match="d.x/n")
    assert cluster.fit(ask) is None
    assert cluster.on("1.37").fit(cluster.claim(cluster.request(count=2), distinct="d.x/m")) is None


def test_one_bad_device_is_named_and_others_are_used_before_it(cluster):
    broken = cluster.device("b", attributes={"m": None})
    cluster.publish(cluster.device("a"), broken)
    ask = cluster.claim(cluster.request(selectors=("true",)))
    assert cluster.fit(ask) == [["r=a"]]
    with pytest.raises(AllocationError, match=r"on device d\.x/p/b: .*unsupported attribute value"):
        cluster.hold("a").fit(ask)


def test_where_upstream_would_try_every_combination_the_search_is_given_up(cluster):
    """Half of 32 equal devices, and then a request for what is not there: 601 080 390 ways."""
    cluster.publish(*(cluster.device(f"d{n}") for n in range(32)))
    ask = cluster.claim(
        cluster.request("half", count=16), cluster.request("none", selectors=("false",))
    )
    with pytest.raises(SearchLimitError, match=r"gave up after looking at \d+ devices"):
        cluster.allocate(ask, most=20_000)


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", "1.37"])
def test_amounts_beyond_64_bits_are_reckoned_with(cluster, version):
    device = cluster.device("a", shared=True, capacity={"m": "1e30"})
    on = cluster.publish(device).on(version)
    on.features.append("DRAConsumableCapacity")
    assert on.fit(cluster.claim(cluster.request(capacity={"m": "9e29"}))) == [["r=a"]]
    assert on.fit(cluster.claim(cluster.request(capacity={"m": "2e30"}))) is None
