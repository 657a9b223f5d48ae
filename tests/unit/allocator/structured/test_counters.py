"""Counters that devices of a pool share, and admin access."""

import pytest

from dray.api.nodes import NodeSelection
from dray_allocator.devices.errors import AllocationError, NodeAllocationError


def partitions(cluster, *names, amount="1", total="2", pool="p", driver="d.x", **fields):
    """Devices that take ``amount`` each of a counter of ``total``, in a slice of its own."""
    cluster.publish(
        pool=pool,
        driver=driver,
        slice_count=2,
        counter_sets=(cluster.counters("card", memory=total),),
    )
    devices = [
        cluster.device(name, consumes=cluster.uses("card", memory=amount), **fields)
        for name in names
    ]
    return cluster.publish(*devices, pool=pool, driver=driver, slice_count=2)


def test_partitions_are_taken_until_a_counter_is_short(cluster):
    partitions(cluster, "a", "b", "c")
    assert cluster.fit(cluster.claim(cluster.request(count=2))) == [["r=a", "r=b"]]
    assert cluster.fit(cluster.claim(cluster.request(count=3))) is None
    assert cluster.hold("c").fit(cluster.claim(cluster.request(count=2))) is None


def test_the_search_gives_counters_back(cluster):
    cluster.publish(slice_count=2, counter_sets=(cluster.counters("card", memory="3"),))
    cluster.publish(
        cluster.device("two", consumes=cluster.uses("card", memory="2")),
        cluster.device("one", consumes=cluster.uses("card", memory="1")),
        cluster.device("last", attributes={"l": True}, consumes=cluster.uses("card", memory="2")),
        slice_count=2,
    )
    last = cluster.request("s", selectors=('has(device.attributes["d.x"].l)',))
    assert cluster.fit(cluster.claim(cluster.request(), last)) == [["r=one", "s=last"]]


def test_counters_of_a_shared_device_are_taken_once(cluster):
    partitions(cluster, "a", amount="2", shared=True)
    both = cluster.claim(cluster.request("r"), cluster.request("s"))
    assert cluster.fit(both) == [["r=a", "s=a"]]


@pytest.mark.parametrize(("version", "fits"), [("1.36", False), ("1.37", True)])
def test_a_bare_share_frees_counters_until_1_37(cluster, version, fits):
    partitions(cluster, "a", amount="2", shared=True).hold("a", share_id="share")
    found = cluster.on(version).fit(cluster.claim(cluster.request()))
    assert (found is not None) == fits


def test_a_counter_below_zero_blocks_every_consumer_of_the_pool(cluster):
    cluster.publish(
        slice_count=2,
        counter_sets=(
            cluster.counters("one", m="1"),
            cluster.counters("two", m="1"),
        ),
    )
    cluster.publish(
        cluster.device("held", consumes=cluster.uses("one", m="2")),
        cluster.device("other", consumes=cluster.uses("two", m="1")),
        cluster.device("none"),
        slice_count=2,
    )
    ask = cluster.claim(cluster.request())
    assert cluster.fit(ask) == [["r=other"]]
    assert cluster.hold("held").fit(ask) == [["r=none"]]


@pytest.mark.parametrize(
    ("amount", "version", "fits"),
    [("1.5Gi", "1.36", True), ("1.5Gi", "1.37", False), ("1536Mi", "1.36", False)],
)
def test_a_counter_with_a_binary_fraction_is_lost_on_the_way_until_1_37(
    cluster, amount, version, fits
):
    """The first alternative takes a and gives it back; the second then finds it costs nothing."""
    cluster.publish(
        slice_count=2,
        counter_sets=(cluster.counters("card", m="2Gi"),),
    )
    cluster.publish(
        cluster.device("a", consumes=cluster.uses("card", m=amount)),
        cluster.device("b", consumes=cluster.uses("card", m="1Gi")),
        cluster.device("c"),
        slice_count=2,
    )
    never, all_three = cluster.alternative("n", count=4), cluster.alternative("t", count=3)
    request = cluster.request(first_available=[never, all_three])
    found = cluster.on(version).fit(cluster.claim(request))
    assert (found is not None) == fits


@pytest.mark.parametrize(("version", "fits"), [("1.36", False), ("1.37", True)])
def test_pools_of_one_name_share_counters_until_1_37(cluster, version, fits):
    partitions(cluster, "a", amount="2", driver="d.x")
    partitions(cluster, "b", amount="2", driver="e.x")
    found = cluster.on(version).fit(cluster.claim(cluster.request(count=2)))
    assert (found == [["r=a", "r=b"]]) == fits


def test_a_device_of_another_node_uses_counters_of_the_pool(cluster):
    cluster.publish(
        reach=NodeSelection(all_nodes=True),
        slice_count=3,
        counter_sets=(cluster.counters("card", m="1"),),
    )
    uses = cluster.uses("card", m="1")
    cluster.publish(cluster.device("here", consumes=uses), slice_count=3)
    cluster.publish(cluster.device("there", consumes=uses), slice_count=3, node="there")
    ask = cluster.claim(cluster.request())
    assert cluster.fit(ask) == [["r=here"]]
    assert cluster.hold("there").fit(ask) is None


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_counter_sets_of_another_nodes_slice_are_found(cluster, version):
    cluster.publish(node="there", slice_count=2, counter_sets=(cluster.counters("card", m="1"),))
    cluster.publish(cluster.device("a", consumes=cluster.uses("card", m="1")), slice_count=2)
    assert cluster.on(version).fit(cluster.claim(cluster.request())) == [["r=a"]]


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (("other", {"m": "1"}), "counter set other not found"),
        (("card", {"n": "1"}), "counter n not found in counter set card"),
    ],
)
def test_an_unknown_counter_makes_the_pool_invalid(cluster, uses, expected):
    cluster.publish(slice_count=2, counter_sets=(cluster.counters("card", m="1"),))
    cluster.publish(cluster.device("a", consumes=cluster.uses(uses[0], **uses[1])), slice_count=2)
    with pytest.raises(NodeAllocationError, match=expected):
        cluster.fit(cluster.claim(cluster.request()))


def test_without_the_gate_consumers_and_counter_slices_are_not_used(cluster):
    partitions(cluster, "a")
    cluster.publish(cluster.device("b"), pool="q")
    found = cluster.on("1.36", without="DRAPartitionableDevices")
    assert found.fit(cluster.claim(cluster.request())) == [["r=b"]]


def test_admin_access_passes_over_use_by_others_only(cluster):
    cluster.publish(cluster.device("a")).hold("a")
    watching = cluster.claim(cluster.request(admin_access=True))
    assert cluster.fit(cluster.claim(cluster.request())) is None
    (found,) = cluster.allocate(watching)
    assert found.devices[0].admin_access


def test_admin_access_needs_counters_and_room_of_its_own(cluster):
    partitions(cluster, "a", amount="2").hold("a")
    watching = cluster.claim(cluster.request(admin_access=True))
    assert cluster.fit(watching) is None
    cluster.publish(cluster.device("b", shared=True, capacity={"m": "1"}), pool="q")
    (found,) = cluster.allocate(watching)
    assert (found.devices[0].share_id is not None, found.devices[0].consumed) == (True, {"m": "1"})
    cluster.hold("b", pool="q", share_id="share", consumed={"m": "1"})
    assert cluster.fit(watching) is None


def test_a_device_for_use_and_for_watching_fits_in_two_claims_but_not_in_one(cluster):
    cluster.publish(cluster.device("a"))
    using, watching = cluster.request("r"), cluster.request("w", admin_access=True)
    assert cluster.fit(cluster.claim(using, watching)) is None
    two = cluster.claim(using, name="one"), cluster.claim(watching, name="two")
    assert cluster.fit(*two) == [["r=a"], ["w=a"]]


def test_admin_access_is_no_use(cluster):
    cluster.publish(cluster.device("a")).hold("a", admin_access=True)
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=a"]]


def test_all_over_a_pool_with_an_unknown_counter_is_an_error(cluster):
    cluster.publish(cluster.device("a", consumes=cluster.uses("card", m="1")))
    with pytest.raises(AllocationError, match="is currently invalid"):
        cluster.fit(cluster.claim(cluster.request(mode="All")))
