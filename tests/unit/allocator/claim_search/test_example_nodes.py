"""The node whose verdict a class shares may have changed before its reason is written."""

from typing import Any

import pytest
from tests.unit.allocator.objects import (
    as_alternatives,
    card,
    devices_of,
    publish,
    reasons_of,
    request,
    submit,
)

from dray.api import names
from dray_allocator.core.handle import reasons


@pytest.mark.parametrize("changed", ["n1", "n2"])
def test_the_reason_for_a_node_is_not_read_from_a_node_that_was_equivalent(
    make_world: Any, changed: str
) -> None:
    world = make_world().open()
    for node in ("n1", "n2"):
        publish(world, node, card(f"{node}-gpu", group="two"))
    wants_two = f'device.attributes["{names.DRIVER}"].group == "two"'
    asked = request(selectors=[{"cel": {"expression": wants_two}}], count=2)
    submit(world, "a", as_alternatives(devices_of(asked)))
    reasons_of(world, "a")
    publish(world, changed, card(f"{changed}-gpu", group="one"))
    (clause,) = (one for one in reasons(world.state, "a") if one.kind == "clause")
    assert (clause.failed, clause.of) == (1, 2)
