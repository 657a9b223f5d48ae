"""Reasons of the search say which request or alternative they are about."""

from typing import Any

from tests.unit.allocator.claim_search.test_percent import card, percent

from dray.api import names

NVIDIA = "gpu.nvidia.com"
OF = f'device.attributes["{NVIDIA}"]'


def of_model(model: str, of: str = NVIDIA) -> Any:
    """Selectors for a model."""
    expression = f'device.attributes["{of}"].model == "{model}"'
    return {"selectors": [{"cel": {"expression": expression}}]}


def test_each_alternative_is_named(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a", "A100"), driver=NVIDIA)
    both = [kube.request(name, NVIDIA, **of_model(name.upper())) for name in ("h100", "h200")]
    kube.submit("p", kube.first_of(*both))
    first, second, *_ = kube.reasons_of("p").splitlines()
    assert first.startswith(f'request gpu/h100: {OF}.model == "H100" is false: 1 of 1 device')
    assert second.startswith(f'request gpu/h200: {OF}.model == "H200" is false: 1 of 1 device')


def test_of_what_both_alternatives_lack_none_is_named(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"), driver=NVIDIA)
    kube.submit("holds", kube.first_of(kube.request("a", NVIDIA)))
    first = kube.request("a", NVIDIA, **of_model("A100"))
    kube.submit("p", kube.first_of(first, kube.request("b", NVIDIA)))
    assert kube.reasons_of("p").splitlines()[0] == "in use: 1 of 1 device"


def test_requests_with_and_without_admin_access_are_distinguished(kube: Any) -> None:
    """Only the one that takes devices waits for one that nobody has."""
    kube.node("n1")
    kube.publish("n1", kube.device("a"), driver=NVIDIA)
    kube.submit("holds", kube.first_of(kube.request("a", NVIDIA)))
    watching = kube.request("watches", NVIDIA, adminAccess=True)
    kube.submit("p", watching, kube.request("takes", NVIDIA))
    assert kube.reasons_of("p").startswith("request takes: in use: 1 of 1 device")


def test_a_percentage_is_shown_as_one_and_the_nearest_has_the_most_in_percent(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", card(kube, "a", "100", "40Gi"), card(kube, "b", "65", "16Gi"))
    only = kube.first_of(kube.request("only"))
    for name, amount in (("p", "80"), ("q", "70")):
        kube.submit(name, only, config=[percent(amount, "gpu/only")])
    kube.submit("r", only, config=[percent("50", "gpu/only")])
    near = kube.got("q")[0].partition("=")[2]
    assert kube.reasons_of("r").splitlines()[:2] == [
        f"not enough free {key} (50 % of {of} asked): 2 of 2 devices; nearest: n1/{near} has 30 %"
        for key, of in (("virtual_tflops", "tflops"), ("virtual_vram", "vram"))
    ]


def test_a_model_that_no_device_has_comes_with_a_suggestion(kube: Any) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a", "H100"), kube.device("b", "A100"), driver=NVIDIA)
    kube.submit("p", kube.first_of(kube.request("a", NVIDIA, **of_model("a100"))))
    assert ': 2 of 2 devices (did you mean "A100"?); nearest: ' in kube.reasons_of("p")


def test_amounts_are_written_as_people_read_them(kube: Any) -> None:
    kube.node("n1")
    memory = {"capacity": {"memory": {"value": "85899345920"}, "links": {"value": "2000m"}}}
    kube.publish("n1", kube.device("a", **memory, allowMultipleAllocations=True), driver=NVIDIA)

    def of(**requests: str) -> Any:
        return kube.first_of(kube.request("a", NVIDIA, capacity={"requests": requests}))

    kube.submit("holds", of(memory="16Gi", links="1"))
    kube.submit("p", of(memory="75161927680", links="5000000m"))
    assert (
        "not enough free memory (70Gi asked): 1 of 1 device; nearest: n1/a has 64Gi"
        in kube.reasons_of("p")
    )
    assert (
        "not enough free links (5000 asked): 1 of 1 device; nearest: n1/a has 1"
        in kube.reasons_of("p")
    )
    kube.submit("q", of(sockets="1000m", memory="1024Mi"))
    assert (
        "too small, or without such a capacity (memory 1Gi, sockets 1 asked): 1 of 1 device"
        in kube.reasons_of("q")
    )
    assert "nearest: n1/a has memory 80Gi, no sockets" in kube.reasons_of("q")


def test_with_connected_cards_all_devices_are_counted(kube: Any) -> None:
    """The table reads the two cards alone, and not the ports that many nodes see."""
    kube.node("n1")
    joined = {"attributes": {names.NUMA_NODE: {"int": 0}}}
    kube.publish("n1", {"name": "a", **joined}, {"name": "b", **joined})
    ports = [kube.device(name, "port") for name in ("x", "y", "z")]
    kube.publish("fabric", *ports, driver=NVIDIA, pool="rack", allNodes=True)
    parameters = {"kind": names.LIMITS_KIND, names.TOPOLOGY_FIELD: "hard"}
    hard = {"opaque": {"driver": names.DRIVER, "parameters": parameters}}
    kube.submit("p", kube.request(count=2), kube.request("port", NVIDIA), config=[hard])
    of_port, together = kube.reasons_of("p").splitlines()
    assert of_port.startswith(
        f'request port: device.driver == "{NVIDIA}" is false: 2 of 5 devices; '
    )
    assert together.startswith(
        "fewer than 3 matching devices with room on one node, joined by NVLink"
    )
    assert ": 1 of 1 node (only devices that a node publishes for itself, " in together


def test_a_request_for_more_devices_than_any_node_has_says_how_many_there_are(kube: Any) -> None:
    for node in ("n1", "n2"):
        kube.node(node)
        kube.publish(node, *(kube.device(name) for name in "abc"), driver=NVIDIA)
    kube.submit("p", kube.first_of(kube.request("gpu", NVIDIA, count=4)))
    others = [kube.request(name, NVIDIA) for name in ("w", "x", "y")]
    apart = kube.first_of(kube.request("v", NVIDIA)), *others
    differ = [{"distinctAttribute": f"{NVIDIA}/uuid"}]
    kube.submit("q", *apart, constraints=differ)
    kube.submit("fits", kube.request("gpu", NVIDIA, count=3))
    assert kube.got("fits")

    for pod in ("p", "q"):
        assert kube.reasons_of(pod).startswith("not enough devices for all its requests together")
        assert kube.reasons_of(pod).endswith(": 2 of 2 nodes (no node has more than 3)")
