"""Values are the same where their types are, too, however deep."""

import pytest
from msgspec.structs import replace

from dray.api.devices import Device, OpaqueConfig, Version
from dray.api.equality import strictly_equal

VALUES = (True, 1, "1", Version("1"), 2, False, 0)


def with_list(value: object) -> Device:
    return Device("a", attributes={"x": (value,)})  # type: ignore[arg-type]


@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("other", VALUES)
def test_only_what_is_of_one_type_is_the_same(one: object, other: object) -> None:
    expected = one is other
    assert strictly_equal(one, other) is expected
    assert strictly_equal({"a": [one]}, {"a": [other]}) is expected
    assert strictly_equal(with_list(one), with_list(other)) is expected
    config = OpaqueConfig("d", {"on": one})
    assert strictly_equal(config, replace(config, parameters={"on": other})) is expected


def test_the_order_of_names_is_no_matter_and_numbers_tell_how_they_are_written() -> None:
    assert strictly_equal(Device("a", {"x": 1, "y": 2}), Device("a", {"y": 2, "x": 1}))
    assert not strictly_equal({"a": 1}, {"a": 1.0})
    assert strictly_equal((None, None), (None, None))
