"""Facts that are too large keep what counts against others, and say why nothing is decided."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dray.api.claims import (
    AllocatedDevice,
    Allocation,
    Claim,
    ClaimSpec,
    DeviceRequest,
    DeviceTerms,
)
from dray.api.devices import (
    CounterSet,
    Device,
    DeviceClass,
    DeviceId,
    OpaqueConfig,
    ResourceSlice,
)
from dray.api.nodes import (
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.api.pods import NodeExpression, Pod, PodNeeds
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    Fact,
    PodObserved,
    SliceObserved,
    TemplateObserved,
)
from dray_claim_controller.facts.size_limit import fit_to_limit, size_bytes

LIMIT = 2**20
LONG = "x" * LIMIT
WHY = "too large for the bus: "


def a_claim(allocation: Allocation | None = None, **spec: Any) -> ClaimObserved:
    claim = Claim(
        "u", "ns", "c", 7, "pool", ClaimSpec(**spec), "pod-u", "pod", allocation, ("r",), 3
    )
    return ClaimObserved(revision=7, claim=claim, beside=("other",))


def reduced(fact: Fact) -> Any:
    found = fit_to_limit(fact, LIMIT)
    assert found is not None
    assert size_bytes(found) <= LIMIT
    return found


def test_what_fits_stays_as_it_is() -> None:
    fact = a_claim()
    assert fit_to_limit(fact, LIMIT) is fact


def test_a_claim_keeps_all_but_what_it_asks_for() -> None:
    share = AllocatedDevice(
        "r", DeviceId("d", "p", "gpu"), "s", {"vram": "1Gi"}, False, DeviceTerms()
    )
    config = (OpaqueConfig("d", {"a": LONG}),)
    requests = (DeviceRequest("r", "class", (LONG,)),)
    fact = a_claim(Allocation((share,), "n", config), requests=requests, config=config)
    found = reduced(fact)
    assert found.claim.spec.unsupported[0].startswith(f"{WHY}{size_bytes(fact)} bytes")
    assert found.claim.allocation == Allocation((share,), "n")
    kept = replace(found.claim, spec=fact.claim.spec, allocation=fact.claim.allocation)
    assert (kept, found.beside) == (fact.claim, fact.beside)


def test_of_a_claim_that_is_still_too_large_the_devices_stay() -> None:
    terms = DeviceTerms(binding_conditions=(LONG,))
    share = AllocatedDevice("r", DeviceId("d", "p", "gpu"), "s", {"vram": "1Gi"}, False, terms)
    found = reduced(a_claim(Allocation((share,), "n")))
    assert found.claim.allocation.devices == (replace(share, terms=None),)


def test_no_node_meets_what_a_reduced_pod_needs() -> None:
    needs = PodNeeds(1, 2, node_terms=((NodeExpression("a", "In", (LONG,)),),), unread=("volumes",))
    found = reduced(PodObserved(revision=1, pod=Pod("u", "ns", "p", 1, "pool", "s", needs=needs)))
    [[expression]] = found.pod.needs.node_terms
    assert expression.key.startswith(WHY)
    assert not expression.holds({expression.key: ""})
    assert (found.pod.needs.cpu_milli, found.pod.needs.unread) == (1, ("volumes",))


def a_slice(*devices: Device, **more: Any) -> SliceObserved:
    return SliceObserved(
        revision=1, slice=ResourceSlice("s", "u", "d", "p", 4, 1, "", devices, **more)
    )


def test_of_a_slice_no_device_is_offered() -> None:
    terms = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement("a", "In", (LONG,)),)),))
    counters = (CounterSet("c", {LONG: "1"}),)
    fact = a_slice(Device(LONG), nodes=NodeSelection(selector=terms), counter_sets=counters)
    assert reduced(fact) == a_slice()


def test_a_template_says_why_it_can_t_be_used() -> None:
    labels = {"a": "b"}
    found = reduced(
        TemplateObserved(revision=1, namespace="ns", name="t", labels=labels, spec={"a": LONG})
    )
    assert (found.spec, found.labels) == ({}, labels)
    assert found.unusable.startswith(WHY)


def test_a_tombstone_is_reduced_as_what_it_buries() -> None:
    fact = a_claim(config=(OpaqueConfig("d", {"a": LONG}),))
    tombstone = msgspec.structs.replace(fact, deleted=True)
    assert reduced(tombstone).deleted


@pytest.mark.parametrize("fact", [DeviceClassObserved(revision=1, device_class=DeviceClass(LONG))])
def test_what_can_t_be_reduced_is_left_out(fact: Fact) -> None:
    assert fit_to_limit(fact, LIMIT) is None
