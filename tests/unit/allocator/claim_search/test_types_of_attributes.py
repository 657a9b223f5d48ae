"""An attribute that changes its type alone is another one: ``true`` is not 1."""

from typing import Any

from dray.api import names

FAST = f'device.attributes["{names.DRIVER}"].fast == 1'


def test_a_slice_whose_attribute_becomes_a_number_serves_who_asks_for_one(lane: Any) -> None:
    def publish(**fast: Any) -> None:
        lane.publish("n1", {"name": "a", "attributes": {"fast": fast}})

    lane.node("n1")
    publish(bool=True)
    lane.submit("p", lane.request(selectors=[{"cel": {"expression": FAST}}]))
    assert lane.waits("p")
    publish(int=1)
    assert lane.got("p") == ["gpu=a"]
    publish(bool=True)
    lane.submit("q", lane.request(selectors=[{"cel": {"expression": FAST}}]))
    assert lane.waits("q")
