"""Which devices a claim may have: selectors, constraints, taints, health, and amounts."""

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import ClaimSpec, Constraint, DeviceRequest, DeviceToleration
from dray.api.devices import DeviceClass, OpaqueConfig, Taint
from dray.messages.facts import (
    ClusterObserved,
    DeviceClassObserved,
    InventoryObserved,
    SliceObserved,
)


def _pair(attribute: str, *, match: bool) -> ClaimSpec:
    capacity = {"virtual_tflops": "10", "virtual_vram": "1Gi"}
    requests = tuple(
        DeviceRequest(f"r{i}", names.DEVICE_CLASS, capacity=capacity) for i in range(2)
    )
    name = names.qualified(attribute)
    rule = Constraint(match_attribute=name) if match else Constraint(distinct_attribute=name)
    return ClaimSpec(requests, (rule,))


def test_distinct_attribute_keeps_two_requests_from_sharing_a_card(world):
    world.nodes(world.a_node("n1"), cards=1)
    world.submit(world.a_pod("p"), _pair("uuid", match=False))
    assert not world.decisions()
    world.nodes(world.a_node("n2"), cards=2)
    assert world.decisions()["p"].node == "n2"


def test_match_attribute_wants_equal_values_and_the_attribute_itself(world):
    world.nodes(world.a_node("n1"), cards=1)
    world.see(
        SliceObserved(
            revision=world.next(),
            slice=world.a_slice("n2", [world.a_card("x"), world.a_card("y", model="H100")]),
        )
    )
    world.submit(world.a_pod("p"), _pair("nosuch", match=True))
    assert not world.decisions()
    world.submit(world.a_pod("q"), _pair("model", match=True))
    assert len({d.id for d in world.decisions()["q"].claims[0].allocation.devices}) == 1


def test_selectors_of_class_and_request_must_all_hold(world):
    domain = f'device.attributes["{names.DRIVER}"]'
    made = DeviceClass(
        names.DEVICE_CLASS,
        (f'device.driver == "{names.DRIVER}"',),
        (OpaqueConfig(names.DRIVER, {"from": "class"}),),
    )
    world.see(DeviceClassObserved(revision=5, device_class=made))
    world.nodes(world.a_node("n1"), model="A100").nodes(world.a_node("n2"), model="H100")
    limits = OpaqueConfig(names.DRIVER, {"kind": "GPULimits"}, (names.GPU_REQUEST,))
    spec = replace(world.ask(selectors=(f'{domain}.model == "H100"',)), config=(limits,))
    world.submit(world.a_pod("p"), spec)

    allocation = world.decisions()["p"].claims[0].allocation
    assert allocation.node == "n2"
    assert [(c.source, c.requests) for c in allocation.config] == [
        ("FromClass", (names.GPU_REQUEST,)),
        ("FromClaim", (names.GPU_REQUEST,)),
    ]


def test_selectors_are_read_as_the_observed_server_reads_them_and_waiting_pods_tried_again(world):
    """Up to 1.36 a selector must not be of type dyn; ``includes`` came with 1.36."""
    world.nodes(world.a_node("n1"), cards=2)
    world.submit(world.a_pod("newer"), world.ask(selectors=("dyn(true)",)))
    assert [reason.kind for reason in world.waits("newer")[0].reasons] == ["clause-error"]
    world.see(ClusterObserved(revision=world.next(), version="v1.37.0+vendor"))
    assert "newer" in world.decisions()

    world.see(ClusterObserved(revision=world.next(), version="v1.35.4"))
    includes = f'device.attributes["{names.DRIVER}"].model.includes("A100")'
    world.submit(world.a_pod("older"), world.ask(selectors=(includes,)))
    assert "older" not in world.decisions()
    world.see(ClusterObserved(revision=world.next(), version="v1.36.3"))
    assert "older" in world.decisions()


def test_a_server_that_is_observed_again_as_it_was_moves_nothing(world):
    world.see(ClusterObserved(revision=world.next(), version="v1.37.0"))
    supply = world.state.domains["pool"].queue.capacity_version
    world.see(ClusterObserved(revision=world.next(), version="v1.37.1"))
    assert world.state.domains["pool"].queue.capacity_version == supply


def test_a_device_on_which_a_selector_fails_does_not_match_and_the_clause_is_named(world):
    world.nodes(world.a_node("n1"))
    clause = f'device.attributes["{names.DRIVER}"].nosuch == "x"'
    world.submit(world.a_pod("p"), world.ask(selectors=(f"{clause} && true",)))
    (reason,) = world.waits("p")[0].reasons
    assert (reason.kind, reason.what, reason.failed, reason.of) == ("clause-error", clause, 1, 1)
    assert "nosuch" in reason.detail


def test_only_dray_s_own_taint_is_ignored(world):
    world.nodes(world.a_node("n1"))
    unhealthy_device = replace(world.a_card("g"), taints=(Taint("unhealthy", "xid", "NoExecute"),))
    world.see(
        SliceObserved(revision=9, slice=world.a_slice("n1", [unhealthy_device], generation=2))
    )
    world.submit(world.a_pod("p"))
    assert [reason.kind for reason in world.waits("p")[0].reasons] == ["taint"]
    tolerant = world.ask(tolerations=(DeviceToleration("unhealthy", "Exists"),))
    world.submit(world.a_pod("q"), tolerant)
    assert "q" in world.decisions()


def test_unhealthy_devices_and_incomplete_pools_are_passed_over(world):
    world.nodes(world.a_node("n1"))
    world.see(InventoryObserved(revision=1, node="n1", driver=names.DRIVER, unhealthy=("n1-gpu0",)))
    world.submit(world.a_pod("p"))
    assert not world.decisions()
    half = replace(world.a_slice("n2", [world.a_card("x")]), slice_count=2)
    world.see(SliceObserved(revision=9, slice=half))
    world.node(world.a_node("n2"))
    assert not world.decisions()
    world.see(InventoryObserved(revision=2, node="n1", driver=names.DRIVER, unhealthy=()))
    assert world.decisions()["p"].node == "n1"


def test_devices_of_an_older_generation_are_not_given(world):
    world.node(world.a_node("n1"))
    old = replace(world.a_slice("n1", [world.a_card("old")]), name="s-old")
    world.see(SliceObserved(revision=1, slice=old))
    new = world.a_slice("n1", [world.a_card("new")], generation=2)
    world.see(SliceObserved(revision=2, slice=new))
    world.submit(world.a_pod("p"))
    assert world.decisions()["p"].claims[0].allocation.devices[0].id.device == "new"


@pytest.mark.parametrize(
    "spec",
    [
        ClaimSpec((DeviceRequest("r", names.DEVICE_CLASS, mode="Some"),)),
        ClaimSpec((DeviceRequest("r", names.DEVICE_CLASS, count=33),)),
        ClaimSpec((DeviceRequest("r", "no-such-class"),)),
        ClaimSpec((DeviceRequest("r", names.DEVICE_CLASS),), unsupported=("firstAvailable",)),
    ],
)
def test_the_reason_names_what_dray_can_t_allocate(world, spec):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"), spec)
    assert not world.decisions()
    assert {reason.kind for reason in world.waits("p")[0].reasons} == {"unsupported"}


def test_a_false_guard_is_the_reason_not_the_failure_behind_it(world):
    world.nodes(world.a_node("n1"), cards=3)
    attribute = f'device.attributes["{names.DRIVER}"].nosuch'
    selector = f'has({attribute}) && {attribute} == "x"'
    world.submit(world.a_pod("p"), world.ask(selectors=(selector,)))
    (reason,) = world.waits("p")[0].reasons
    assert (reason.kind, reason.what) == ("clause", f"has({attribute})")
    assert (reason.failed, reason.of) == (3, 3)


@pytest.mark.parametrize("value", ["much", "-5", ""])
def test_a_card_with_an_absurd_amount_is_passed_over_and_the_others_are_given(world, value):
    odd = world.a_card("odd", vram=value)
    world.see(SliceObserved(revision=world.next(), slice=world.a_slice("n0", [odd])))
    world.node(world.a_node("n0"))
    world.submit(world.a_pod("waits"))
    assert {reason.kind for reason in world.waits("waits")[0].reasons} == {"unsupported"}
    world.nodes(world.a_node("n1"))
    assert world.decisions()["waits"].node == "n1"
