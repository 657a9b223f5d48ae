"""Reasons of the structured lane say which request or alternative they are about."""

from typing import Any

from tests.unit.allocator.lane.test_percent import card, percent

from dray.api import names

NVIDIA = "gpu.nvidia.com"
OF = f'device.attributes["{NVIDIA}"]'


def of_model(model: str, of: str = NVIDIA) -> Any:
    """Selectors for a model."""
    expression = f'device.attributes["{of}"].model == "{model}"'
    return {"selectors": [{"cel": {"expression": expression}}]}


def test_each_alternative_is_named(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a", "A100"), driver=NVIDIA)
    both = [lane.request(name, NVIDIA, **of_model(name.upper())) for name in ("h100", "h200")]
    lane.submit("p", lane.first_of(*both))
    first, second, *_ = lane.told("p").splitlines()
    assert first.startswith(f'request gpu/h100: {OF}.model == "H100" is false: 1 of 1 device')
    assert second.startswith(f'request gpu/h200: {OF}.model == "H200" is false: 1 of 1 device')


def test_of_what_both_alternatives_lack_none_is_named(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"), driver=NVIDIA)
    lane.submit("holds", lane.first_of(lane.request("a", NVIDIA)))
    first = lane.request("a", NVIDIA, **of_model("A100"))
    lane.submit("p", lane.first_of(first, lane.request("b", NVIDIA)))
    assert lane.told("p").splitlines()[0] == "in use: 1 of 1 device"


def test_who_watches_and_who_takes_are_told_apart(lane: Any) -> None:
    """Only the one that takes devices waits for one that nobody has."""
    lane.node("n1")
    lane.publish("n1", lane.device("a"), driver=NVIDIA)
    lane.submit("holds", lane.first_of(lane.request("a", NVIDIA)))
    watching = lane.request("watches", NVIDIA, adminAccess=True)
    lane.submit("p", watching, lane.request("takes", NVIDIA))
    assert lane.told("p").startswith("request takes: in use: 1 of 1 device")


def test_a_percentage_is_told_as_one_and_the_nearest_has_the_most_in_percent(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", card(lane, "a", "100", "40Gi"), card(lane, "b", "65", "16Gi"))
    only = lane.first_of(lane.request("only"))
    for name, amount in (("p", "80"), ("q", "70")):
        lane.submit(name, only, config=[percent(amount, "gpu/only")])
    lane.submit("r", only, config=[percent("50", "gpu/only")])
    near = lane.got("q")[0].partition("=")[2]
    assert lane.told("r").splitlines()[:2] == [
        f"not enough free {key} (50 % of {of} asked): 2 of 2 devices; nearest: n1/{near} has 30 %"
        for key, of in (("virtual_tflops", "tflops"), ("virtual_vram", "vram"))
    ]


def test_a_model_that_no_device_has_is_told_with_the_one_that_was_meant(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a", "H100"), lane.device("b", "A100"), driver=NVIDIA)
    lane.submit("p", lane.first_of(lane.request("a", NVIDIA, **of_model("a100"))))
    assert ': 2 of 2 devices (did you mean "A100"?); nearest: ' in lane.told("p")


def test_amounts_are_written_as_people_read_them(lane: Any) -> None:
    lane.node("n1")
    memory = {"capacity": {"memory": {"value": "85899345920"}, "links": {"value": "2000m"}}}
    lane.publish("n1", lane.device("a", **memory, allowMultipleAllocations=True), driver=NVIDIA)

    def of(**requests: str) -> Any:
        return lane.first_of(lane.request("a", NVIDIA, capacity={"requests": requests}))

    lane.submit("holds", of(memory="16Gi", links="1"))
    lane.submit("p", of(memory="75161927680", links="5000000m"))
    assert (
        "not enough free memory (70Gi asked): 1 of 1 device; nearest: n1/a has 64Gi"
        in lane.told("p")
    )
    assert "not enough free links (5k asked): 1 of 1 device; nearest: n1/a has 1" in lane.told("p")
    lane.submit("q", of(sockets="1000m", memory="1024Mi"))
    assert (
        "too small, or without such a capacity (memory 1Gi, sockets 1 asked): 1 of 1 device"
        in lane.told("q")
    )
    assert "nearest: n1/a has memory 80Gi, no sockets" in lane.told("q")


def test_beside_cards_that_must_be_joined_all_devices_are_counted(lane: Any) -> None:
    """The table reads the two cards alone, and not the ports that many nodes see."""
    lane.node("n1")
    joined = {"attributes": {names.NUMA_NODE: {"int": 0}}}
    lane.publish("n1", {"name": "a", **joined}, {"name": "b", **joined})
    ports = [lane.device(name, "port") for name in ("x", "y", "z")]
    lane.publish("fabric", *ports, driver=NVIDIA, pool="rack", allNodes=True)
    parameters = {"kind": names.LIMITS_KIND, names.TOPOLOGY_FIELD: "hard"}
    hard = {"opaque": {"driver": names.DRIVER, "parameters": parameters}}
    lane.submit("p", lane.request(count=2), lane.request("port", NVIDIA), config=[hard])
    of_port, together = lane.told("p").splitlines()
    assert of_port.startswith(
        f'request port: device.driver == "{NVIDIA}" is false: 2 of 5 devices; '
    )
    assert together.startswith(
        "fewer than 3 matching devices with room on one node, joined by NVLink"
    )
    assert ": 1 of 1 node (where cards must be joined, " in together
