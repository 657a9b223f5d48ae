"""Claims that are nested deep, that can't be read, or whose decisions are long, hinder no other."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.allocator.objects import reasons_of

from dray.api import names
from dray.api.claims import Allocation, ClaimSpec
from dray.api.devices import DeviceId, OpaqueConfig
from dray.bus.payload import MINIMUM_BYTES
from dray.kube.convert import claim_from
from dray.messages.base import Delivered, encode
from dray.messages.decisions import Decided, Waiting, encode_record
from dray.messages.facts import ClaimObserved, PodObserved
from dray_allocator.core.handle import reasons, recompute
from dray_allocator.service.decision_logs import record_of
from dray_allocator.service.facts_consumer import fact_of
from dray_allocator.values.options import AllocatorOptions


def deep(depth: int) -> msgspec.Raw:
    return msgspec.Raw(b"[" * depth + b"]" * depth)


def with_config(world: Any, *parameters: dict[str, object]) -> ClaimSpec:
    config = tuple(OpaqueConfig("x.example.com", one) for one in parameters)
    return replace(world.ask(), config=config)


def delivered(payload: bytes, subject: str) -> Delivered:
    return Delivered(subject, payload, {}, "STREAM", 1, 0.0)


@pytest.mark.parametrize("depth", [100, 2_000, 10_000])
def test_a_claim_with_deep_configuration_is_decided_with_all_of_it(world, depth):
    world.nodes(world.a_node("n1"))
    claim = world.a_claim("p", with_config(world, {"a": deep(depth)}))
    message = encode(ClaimObserved(revision=1, claim=claim), source="test")
    fact = fact_of(delivered(message.payload, message.subject), {names.DRIVER})
    world.see(msgspec.structs.replace(fact, revision=world.next()))
    world.submit(world.a_pod("p"), fact.claim.spec)
    [record] = [one for one in world.logs["pool"] if isinstance(one, Decided)]
    read = record_of(delivered(encode_record(record), "dray.decision.pool.1"))
    [config] = read.pods[0].claims[0].allocation.config
    assert msgspec.json.encode(config.parameters) == b'{"a":' + bytes(deep(depth)) + b"}"


def test_a_decision_that_fits_no_record_waits_with_a_reason_and_others_are_decided(make_world):
    world = (
        make_world(AllocatorOptions(decided_bytes=10_000))
        .open()
        .nodes(*map(make_world.a_node, "ab"))
    )
    world.submit(world.a_pod("long"), with_config(world, {"a": "x" * 10_000}))
    world.submit(world.a_pod("short"))
    assert "short" in world.decisions()
    assert "the decision would have 10" in reasons_of(world, "long")
    assert "10000 at most: make the configuration" in reasons_of(world, "long")
    assert not world.state.unfinished


def test_the_reason_is_the_same_at_each_request(make_world):
    world = make_world(AllocatorOptions(decided_bytes=10_000)).open().nodes(make_world.a_node("a"))
    world.submit(world.a_pod("long"), with_config(world, {"a": "x" * 10_000}))
    [record] = world.waits("long")
    assert reasons(world.state, "long") == record.reasons
    assert recompute(world.state, record) == record


def test_a_shorter_claim_is_decided(make_world):
    world = make_world(AllocatorOptions(decided_bytes=10_000)).open().nodes(make_world.a_node("a"))
    world.submit(world.a_pod("p"), with_config(world, {"a": "x" * 10_000}))
    assert "p" not in world.decisions()
    world.claim(world.a_claim("p", world.ask()))
    assert "p" in world.decisions()


def test_a_record_holds_no_more_decisions_than_there_is_room_for(make_world):
    world = make_world(AllocatorOptions(decided_bytes=10_000)).open()
    for name in "abcdef":
        world.submit(world.a_pod(name), with_config(world, {"a": "x" * 4_000}))
    world.nodes(world.a_node("n1"), cards=8)
    found = [one for one in world.logs["pool"] if isinstance(one, Decided)]
    assert sorted(pod.name for one in found for pod in one.pods) == list("abcdef")
    assert [len(one.pods) for one in found] == [2, 2, 2]
    assert all(len(encode_record(one)) < 11_000 for one in found)


def test_records_fit_the_least_that_a_bus_takes(world):
    long = world.state.options.decided_bytes - 5_000
    assert long > MINIMUM_BYTES * 0.7
    for name in "abc":
        world.submit(world.a_pod(name), with_config(world, {"a": "x" * long}))
    world.submit(world.a_pod("long"), with_config(world, {"a": "x" * MINIMUM_BYTES}))
    world.nodes(world.a_node("n1"), cards=8)
    assert {"a", "b", "c"} <= set(world.decisions())
    assert "at most: make the configuration" in reasons_of(world, "long")
    assert all(len(encode_record(one)) < MINIMUM_BYTES * 0.95 for one in world.logs["pool"])


def test_reasons_of_a_megabyte_are_shortened(world):
    world.nodes(world.a_node("n1"))
    selectors = tuple(f'device.attributes["x"].y == "{n}{"z" * 10_000}"' for n in range(100))
    world.submit(world.a_pod("p"), world.ask(selectors=selectors))
    [record] = world.waits("p")
    assert len(encode_record(record)) < 200_000
    assert "…" in reasons_of(world, "p")


def allocated(*results: Any, **claim: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "odd",
            "namespace": "ns",
            "uid": "claim-odd",
            "resourceVersion": "1",
            "labels": {names.POOL_LABEL: "pool"},
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"nothing": "known"}}]}},
        "status": {"allocation": {"devices": {"results": list(results)}}},
        **claim,
    }


def test_devices_of_an_unreadable_claim_are_not_allocated(world):
    world.nodes(world.a_node("n1"))
    result = {"request": "r", "driver": names.DRIVER, "pool": "n1", "device": "n1-gpu0"}
    odd = claim_from(allocated(result))
    assert odd.spec.unreadable
    assert odd.allocation == Allocation((replace(odd.allocation.devices[0]),), "")
    assert odd.allocation.devices[0].id == DeviceId(names.DRIVER, "n1", "n1-gpu0")
    world.claim(odd)
    world.submit(world.a_pod("p"))
    assert "p" not in world.decisions()
    world.claim(odd, deleted=True)
    assert "p" in world.decisions()


def test_devices_that_cannot_be_read_are_not_one_device_with_many_users(world):
    world.nodes(world.a_node("n1"))
    for number in range(2):
        odd = allocated({"later": True})
        odd["metadata"] |= {"name": f"odd-{number}", "uid": f"claim-odd-{number}"}
        world.claim(claim_from(odd))
    assert world.oversold() == []


def test_the_pod_of_an_unreadable_claim_waits_with_the_reason(world):
    world.nodes(world.a_node("n1"))
    world.claim(claim_from(allocated(status={})))
    pod = world.a_pod("odd")
    reference = replace(pod.claims[0], claim="odd")
    world.see(PodObserved(revision=world.next(), pod=replace(pod, claims=(reference,))))
    [record] = [one for one in world.logs["pool"] if isinstance(one, Waiting)]
    assert record.reasons[0].what == (
        "claim odd: can't be read: its shape is unknown to dray (KeyError: 'deviceClassName')"
    )
