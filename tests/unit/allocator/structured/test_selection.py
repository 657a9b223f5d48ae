"""Which devices are looked at, in which order, and what of it is an error."""

import pytest

from dray.api.claims import DeviceToleration
from dray.api.devices import DeviceClass, Taint
from dray_allocator.devices.errors import AllocationError, SearchLimitError

IS_X = 'device.attributes["d.x"].m == "x"'


def test_a_device_is_evaluated_only_when_the_search_comes_to_it(cluster):
    has, lacks = cluster.device("a", attributes={"m": "x"}), cluster.device("b")
    ask = cluster.claim(cluster.request(selectors=(IS_X,)))
    assert cluster.publish(has, lacks).fit(ask) == [["r=a"]]
    cluster.slices.clear()
    with pytest.raises(AllocationError, match=r"claim ns/claim: selector #0 on device d.x/p/b: "):
        cluster.publish(lacks, has).fit(ask)


def test_a_device_in_use_or_of_an_incomplete_pool_is_not_evaluated(cluster):
    cluster.publish(cluster.device("a"), cluster.device("b", attributes={"m": "x"})).hold("a")
    cluster.publish(cluster.device("c"), pool="incomplete", slice_count=2)
    assert cluster.fit(cluster.claim(cluster.request(selectors=(IS_X,)))) == [["r=b"]]


def test_a_device_of_another_node_is_evaluated_where_devices_name_their_nodes(cluster):
    elsewhere = cluster.device("a", reach=cluster.nodes_with("zone", "b"))
    here = cluster.device("b", attributes={"m": "x"}, reach=cluster.nodes_with("zone", "a"))
    cluster.publish(elsewhere, here, node="", per_device_reach=True)
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=b"]]
    with pytest.raises(AllocationError, match="no such key: m"):
        cluster.fit(cluster.claim(cluster.request(selectors=(IS_X,))))


def test_mode_all_evaluates_devices_in_use_too(cluster):
    cluster.publish(cluster.device("a"), cluster.device("b", attributes={"m": "x"})).hold("a")
    with pytest.raises(AllocationError, match="no such key: m"):
        cluster.fit(cluster.claim(cluster.request(mode="All", selectors=(IS_X,))))


def test_selectors_of_the_class_come_first(cluster):
    cluster.classes.append(DeviceClass("x", ('device.driver == "e.x"',)))
    cluster.publish(cluster.device("a"))
    assert cluster.fit(cluster.claim(cluster.request(of="x", selectors=(IS_X,)))) is None
    cluster.publish(cluster.device("b"), driver="e.x", pool="q")
    with pytest.raises(AllocationError, match=r"on device e\.x/q/b"):
        cluster.fit(cluster.claim(cluster.request(of="x", selectors=(IS_X,))))


def test_a_selector_that_does_not_compile_is_an_error_that_says_where(cluster):
    cluster.publish(cluster.device("a"))
    with pytest.raises(AllocationError, match=r"claim ns/claim: selector #0: CEL compile error"):
        cluster.fit(cluster.claim(cluster.request(selectors=("device.nope",))))


def test_a_second_request_begins_again_at_the_first_device(cluster):
    cluster.publish(*(cluster.device(name) for name in "abc")).hold("a")
    ask = cluster.claim(cluster.request("r", count=1), cluster.request("s"))
    assert cluster.fit(ask) == [["r=b", "s=c"]]


def test_the_search_goes_back_for_what_comes_later(cluster):
    cluster.publish(cluster.device("a", attributes={"m": "x"}), cluster.device("b"))
    only_x = f'"m" in device.attributes["d.x"] && {IS_X}'
    ask = cluster.claim(cluster.request("r"), cluster.request("s", selectors=(only_x,)))
    assert cluster.fit(ask) == [["r=b", "s=a"]]
    assert cluster.fit(
        cluster.claim(cluster.request("r"), name="one"),
        cluster.claim(cluster.request("s", selectors=(only_x,)), name="two"),
    ) == [["r=b"], ["s=a"]]


def test_the_first_alternative_that_is_available_is_taken(cluster):
    cluster.publish(cluster.device("a"))
    two = cluster.alternative("two", count=2)
    one = cluster.alternative("one")
    assert cluster.fit(cluster.claim(cluster.request(first_available=[two, one]))) == [["r/one=a"]]


@pytest.mark.parametrize("count", [33, 64])
def test_more_than_32_devices_are_an_error_in_a_request_alone(cluster, count):
    cluster.publish(*(cluster.device(f"a{n}") for n in range(64)))
    with pytest.raises(AllocationError, match="exceeds the claim limit of 32"):
        cluster.fit(cluster.claim(cluster.request(count=count)))


def test_an_alternative_of_more_than_32_devices_is_passed_over(cluster):
    cluster.publish(*(cluster.device(f"a{n}") for n in range(64)))
    many, few = cluster.alternative("many", count=33), cluster.alternative("few")
    ask = cluster.claim(cluster.request(first_available=[many, few]))
    assert cluster.fit(ask) == [["r/few=a0"]]
    further = cluster.claim(
        cluster.request("b", count=31),
        cluster.request(
            first_available=[
                cluster.alternative("two", count=2),
                few,
            ]
        ),
    )
    assert cluster.fit(further)[0][-1] == "r/few=a31"


@pytest.mark.parametrize("many", [33, 40])
def test_before_136_alternatives_of_all_devices_that_become_too_many_are_an_error(cluster, many):
    """Beyond its first device, mode All goes on as the first alternative, which asks for more."""
    cluster.publish(cluster.device("a"), cluster.device("b"))
    ask = cluster.claim(
        cluster.request(
            first_available=[
                cluster.alternative("many", count=many),
                cluster.alternative("all", mode="All"),
            ]
        )
    )
    assert cluster.fit(ask) == [["r/all=a", "r/all=b"]]
    for version in ("1.34", "1.35"):
        with pytest.raises(AllocationError, match="allocation max size exceeded: each alternative"):
            cluster.on(version).fit(ask)


def test_before_136_too_many_devices_of_a_later_claim_are_no_fit(cluster):
    cluster.publish(*(cluster.device(name) for name in "abc"))
    many, every = cluster.alternative("many", count=33), cluster.alternative("all", mode="All")
    later = cluster.claim(cluster.request(first_available=[many, every]), name="later")
    first = cluster.claim(cluster.request(), name="first")
    assert cluster.on("1.35").fit(first, later) is None


def test_a_missing_class_is_an_error(cluster):
    with pytest.raises(AllocationError, match="could not retrieve device class nope"):
        cluster.fit(cluster.claim(cluster.request(of="nope")))


def test_mode_all_takes_every_device_or_does_not_fit(cluster):
    cluster.publish(cluster.device("a"), cluster.device("b"))
    everything = cluster.claim(cluster.request(mode="All"))
    assert cluster.fit(everything) == [["r=a", "r=b"]]
    assert cluster.hold("b").fit(everything) is None


def test_mode_all_of_nothing_does_not_fit(cluster):
    assert cluster.fit(cluster.claim(cluster.request(mode="All"))) is None


def test_mode_all_with_a_tainted_device_does_not_fit(cluster):
    cluster.publish(cluster.device("a", taints=(Taint("sick"),)), cluster.device("b"))
    assert cluster.fit(cluster.claim(cluster.request(mode="All"))) is None


def test_mode_all_that_breaks_a_constraint_is_an_error(cluster):
    cluster.publish(*(cluster.device(m, attributes={"m": m}) for m in "ab"))
    with pytest.raises(AllocationError, match="because a claim constraint would not be satisfied"):
        cluster.fit(cluster.claim(cluster.request(mode="All"), match="d.x/m"))


@pytest.mark.parametrize(
    ("taint", "toleration", "fits"),
    [
        (Taint("k", "v", "NoSchedule"), None, False),
        (Taint("k", "v", "NoExecute"), None, False),
        (Taint("k", "v", "None"), None, True),
        (Taint("k", "v", "SomethingNew"), None, True),
        (Taint("k", "v"), DeviceToleration("k", "Equal", "v"), True),
        (Taint("k", "v"), DeviceToleration("k", "", "w"), False),
        (Taint("k", "v"), DeviceToleration("", "Exists"), True),
        (Taint("k", ""), DeviceToleration("", "", ""), True),
        (Taint("k", "v"), DeviceToleration("k", "Exists", "", "NoExecute"), False),
        (Taint("k", "v"), DeviceToleration("k", "Never"), False),
    ],
)
def test_a_taint_keeps_away_unless_it_is_tolerated(cluster, taint, toleration, fits):
    cluster.publish(cluster.device("a", taints=(taint,)))
    tolerations = (toleration,) if toleration else ()
    ask = cluster.claim(cluster.request(tolerations=tolerations))
    assert (cluster.fit(ask) is not None) == fits
    assert cluster.on("1.36", without="DRADeviceTaints").fit(ask) is not None


def test_a_search_without_end_is_given_up_with_a_sentence(cluster):
    cluster.publish(*(cluster.device(f"a{n}", attributes={"m": n}) for n in range(40)))
    pairs = [cluster.request(f"r{n}", count=2) for n in range(10)]
    last = cluster.request("last", selectors=("false",))
    with pytest.raises(SearchLimitError, match="gave up after looking at 2000 devices"):
        cluster.allocate(cluster.claim(*pairs, last), most=2000)


@pytest.mark.parametrize(
    ("gate", "request_fields", "expected"),
    [
        ("DRAPrioritizedList", None, "DRAPrioritizedList feature is disabled"),
        ("DRAConsumableCapacity", {"capacity": {"m": "1"}}, "DRAConsumableCapacity feature is"),
        ("DRAAdminAccess", {"admin_access": True}, "admin access is requested, but the feature"),
    ],
)
def test_what_a_gate_keeps_from_being_decided_is_an_error(cluster, gate, request_fields, expected):
    alternatives = {"first_available": [cluster.alternative("s")]}
    request = cluster.request(**(request_fields or alternatives))
    with pytest.raises(AllocationError, match=expected):
        cluster.on("1.36", without=gate).fit(cluster.claim(request))
