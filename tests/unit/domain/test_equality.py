"""Values are the same where their types are, too, however deep."""

import pytest
from msgspec.structs import replace

from dray.domain.devices import Device, OpaqueConfig, Version
from dray.domain.dra import slices
from dray.domain.equality import same

VALUES = (True, 1, "1", Version("1"), 2, False, 0)


def of_slice(value: object) -> slices.Device:
    return slices.Device("a", attributes={"x": (value,)})  # type: ignore[arg-type]


@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("other", VALUES)
def test_only_what_is_of_one_type_is_the_same(one: object, other: object) -> None:
    expected = one is other
    assert same(one, other) is expected
    assert same({"a": [one]}, {"a": [other]}) is expected
    assert same(of_slice(one), of_slice(other)) is expected
    config = OpaqueConfig("d", {"on": one})
    assert same(config, replace(config, parameters={"on": other})) is expected


def test_the_order_of_names_is_no_matter_and_numbers_tell_how_they_are_written() -> None:
    assert same(Device("a", {"x": 1, "y": 2}), Device("a", {"y": 2, "x": 1}))
    assert not same({"a": 1}, {"a": 1.0})
    assert same((None, None), (None, None))
