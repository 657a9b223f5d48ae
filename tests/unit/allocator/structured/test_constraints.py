"""``matchAttribute`` and ``distinctAttribute``."""

import pytest

from dray.api.devices import Version
from dray_allocator.devices.errors import AllocationError


def with_values(cluster, *values):
    """Devices d0, d1 … with an attribute m; None: without it."""
    return cluster.publish(
        *(
            cluster.device(f"d{index}", attributes={} if value is None else {"m": value})
            for index, value in enumerate(values)
        )
    )


@pytest.mark.parametrize(("version", "fits"), [("1.36", True), ("1.37", False)])
def test_distinct_remembers_one_value_per_request_until_1_37(cluster, version, fits):
    with_values(cluster, 1, 2, 1)
    ask = cluster.claim(cluster.request(count=3), distinct="d.x/m")
    assert (cluster.on(version).fit(ask) is not None) == fits
    two = cluster.claim(cluster.request("r", count=2), cluster.request("s"), distinct="d.x/m")
    assert (cluster.on(version).fit(two) is not None) == fits


def test_distinct_differs_between_requests(cluster):
    with_values(cluster, 1, 1, 2)
    ask = cluster.claim(cluster.request("r"), cluster.request("s"), distinct="d.x/m")
    assert cluster.fit(ask) == [["r=d0", "s=d2"]]


def test_match_takes_devices_of_one_value(cluster):
    with_values(cluster, "x", "y", None, "y")
    ask = cluster.claim(cluster.request("r"), cluster.request("s"), match="d.x/m")
    assert cluster.fit(ask) == [["r=d1", "s=d3"]]


@pytest.mark.parametrize("kind", ["match", "distinct"])
def test_a_single_device_needs_the_attribute_too(cluster, kind):
    with_values(cluster, None)
    assert cluster.fit(cluster.claim(cluster.request(), **{kind: "d.x/m"})) is None


@pytest.mark.parametrize("other", ["1", Version("1.0.0"), True])
def test_values_of_different_types_differ(cluster, other):
    with_values(cluster, 1, other)
    both = cluster.request(count=2)
    assert cluster.fit(cluster.claim(both, match="d.x/m")) is None
    assert cluster.fit(cluster.claim(both, distinct="d.x/m")) == [["r=d0", "r=d1"]]


@pytest.mark.parametrize(
    ("published", "named", "fits"),
    [
        ("m", "d.x/m", True),
        ("d.x/m", "d.x/m", True),
        ("o.x/m", "o.x/m", True),
        ("m", "o.x/m", False),
        ("o.x/m", "d.x/m", False),
    ],
)
def test_a_driver_may_leave_out_its_domain(cluster, published, named, fits):
    cluster.publish(cluster.device("a", attributes={published: 1}))
    found = cluster.fit(cluster.claim(cluster.request(), match=named))
    assert (found is not None) == fits


def test_a_constraint_is_over_the_requests_that_it_names(cluster):
    with_values(cluster, 1, 2, 2)
    three = [cluster.request(name) for name in "rst"]
    assert cluster.fit(cluster.claim(*three, match="d.x/m", over=["s", "t"])) == [
        ["r=d0", "s=d1", "t=d2"]
    ]
    assert cluster.fit(cluster.claim(*three, match="d.x/m")) is None


@pytest.mark.parametrize(("over", "fits"), [(["r"], False), (["r/a"], False), (["r/b"], True)])
def test_a_constraint_may_name_a_request_or_one_alternative(cluster, over, fits):
    with_values(cluster, 1, 2)
    request = cluster.request(first_available=[cluster.alternative("a", count=2)])
    found = cluster.fit(cluster.claim(request, match="d.x/m", over=over))
    assert (found is not None) == fits


def test_lists_overlap_or_are_disjoint_where_they_are_known(cluster):
    with_values(cluster, (1, 2), (2, 3), (4,))
    two = cluster.request(count=2)
    lists = cluster.on("1.37")
    lists.features.append("DRAListTypeAttributes")
    assert lists.fit(cluster.claim(two, match="d.x/m")) == [["r=d0", "r=d1"]]
    assert lists.fit(cluster.claim(two, distinct="d.x/m")) == [["r=d0", "r=d2"]]
    assert lists.fit(cluster.claim(cluster.request(count=3), match="d.x/m")) is None
    assert cluster.fit(cluster.claim(two, match="d.x/m")) is None


@pytest.mark.parametrize(
    ("version", "found"),
    [("1.36", ["r=d2", "s=d0", "t=d3"]), ("1.37", ["r=d0", "s=d2", "t=d3"])],
)
def test_match_over_lists_stays_narrow_until_1_37(cluster, version, found):
    with_values(cluster, (1, 2), (1,), (2,), (2,))
    lists = cluster.on(version)
    lists.features.append("DRAListTypeAttributes")
    last = cluster.request("t", selectors=('2 in device.attributes["d.x"].m',))
    ask = cluster.claim(cluster.request("r"), cluster.request("s"), last, match="d.x/m")
    assert lists.fit(ask) == [found]


def test_a_constraint_of_no_kind_that_is_known_is_an_error(cluster):
    with_values(cluster, 1)
    plain = cluster.claim(cluster.request(), distinct="d.x/m")
    simple = cluster.on("1.36")
    simple.features = ["DRAAdminAccess", "DRAPrioritizedList"]
    with pytest.raises(AllocationError, match="constraint #0: empty constraint"):
        simple.fit(plain)
