"""An attribute that changes its type alone is another one: ``true`` is not 1."""

from typing import Any

from dray.api import names

FAST = f'device.attributes["{names.DRIVER}"].fast == 1'


def test_a_slice_whose_attribute_becomes_a_number_activates_pods_that_ask_for_one(
    kube: Any,
) -> None:
    def publish(**fast: Any) -> None:
        kube.publish("n1", {"name": "a", "attributes": {"fast": fast}})

    kube.node("n1")
    publish(bool=True)
    kube.submit("p", kube.request(selectors=[{"cel": {"expression": FAST}}]))
    assert kube.waits("p")
    publish(int=1)
    assert kube.got("p") == ["gpu=a"]
    publish(bool=True)
    kube.submit("q", kube.request(selectors=[{"cel": {"expression": FAST}}]))
    assert kube.waits("q")
