"""Slices in the API server: generations, order, dropped fields, foreign slices."""

import copy
from dataclasses import replace

import msgspec
import pytest

from dray.api.enforcement import MIG, Enforcement
from dray.kube.memory import MemoryKube
from dray.kube.ports import NODES, SLICES, ConflictError
from dray.messages.facts import ClusterObserved
from dray_node_agent.decisions.gpus import GpuSnapshot, device_name
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.decisions.slice_diff import changes, dropped_fields, is_published, path_text
from dray_node_agent.files.publication_record import PublicationRecordFile
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.slice_publisher import NodeMissingError, SlicePublisher

STATE = NodeState("n1", "u", pool="p")
READING = SimulatedGpus("n1", "A100", 2).read()
MANY = SimulatedGpus("n1", "A100", 70).read()


class Gates(MemoryKube):
    """A server that drops what a feature gate of it turns off."""

    off: tuple[str, ...] = ()

    async def create(self, resource, obj, namespace="", **more):
        return await super().create(resource, self._kept(obj), namespace, **more)

    async def update(self, resource, obj, **more):
        return await super().update(resource, self._kept(obj), **more)

    def _kept(self, obj):
        obj = copy.deepcopy(obj)
        for device in obj.get("spec", {}).get("devices", ()):
            for name in self.off:
                device.pop(name, None)
        return obj


@pytest.fixture
async def kube():
    kube = Gates()
    await kube.create(NODES, {"metadata": {"name": "n1"}, "spec": {}})
    return kube


@pytest.fixture
def publisher(kube, tmp_path):
    return SlicePublisher(kube, "n1", PublicationRecordFile(tmp_path / "record.json"))


async def published(kube):
    return [one for one in (await kube.list(SLICES)).objects if one["spec"]["nodeName"] == "n1"]


async def test_publishing_again_writes_nothing(kube, publisher):
    assert await publisher.publish(READING, STATE) == 1
    before = await published(kube)
    assert await publisher.publish(READING, STATE) == 1
    assert await published(kube) == before
    node = await kube.get(NODES, "n1")
    assert before[0]["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


async def test_slices_have_the_labels_and_the_name_of_the_design(kube, publisher):
    await publisher.publish(READING, replace(STATE, assigned_pool="p"))
    (one,) = await published(kube)
    assert one["metadata"]["name"] == "tensor-fusion-resource-slice-n1"
    labels = one["metadata"]["labels"]
    assert labels["tensor-fusion.ai/managed-by"] == labels["kubernetes.io/hostname"] == "n1"
    assert labels["tensor-fusion.ai/gpupool"] == "p"
    (owner,) = one["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", "n1")  # deleted with it


async def test_a_change_is_a_new_generation_of_every_slice(kube, publisher):
    await publisher.publish(MANY, STATE)
    changed = NodeState("n1", "u", pool="other")
    assert await publisher.publish(MANY, changed) == 2
    found = await published(kube)
    assert [one["spec"]["pool"]["generation"] for one in found] == [2, 2]
    assert {one["spec"]["pool"]["resourceSliceCount"] for one in found} == {2}


async def test_slices_that_are_no_longer_needed_go(kube, publisher):
    await publisher.publish(MANY, STATE)
    await publisher.publish(READING, STATE)
    found = await published(kube)
    assert [one["metadata"]["name"] for one in found] == ["tensor-fusion-resource-slice-n1"]


async def test_the_generation_grows_over_a_lost_server_and_a_lost_disk(kube, publisher, tmp_path):
    await publisher.publish(READING, STATE)
    await publisher.publish(READING, NodeState("n1", "u", pool="q"))
    for one in await published(kube):
        await kube.delete(SLICES, one["metadata"]["name"])
    assert await publisher.publish(READING, STATE) == 3
    (tmp_path / "record.json").unlink()
    restarted = SlicePublisher(kube, "n1", PublicationRecordFile(tmp_path / "record.json"))
    assert await restarted.publish(READING, STATE) == 3
    assert await restarted.publish(READING, NodeState("n1", "u", pool="q")) == 4


async def test_a_crash_between_two_writes_is_repaired_by_the_next_start(kube, publisher, tmp_path):
    await publisher.publish(MANY, STATE)
    kube.fail_next("update", ConflictError("crash"), after=True)
    with pytest.raises(ConflictError):
        await publisher.publish(MANY, NodeState("n1", "u", pool="q"))
    restarted = SlicePublisher(kube, "n1", PublicationRecordFile(tmp_path / "record.json"))
    await restarted.publish(MANY, NodeState("n1", "u", pool="q"))
    found = await published(kube)
    assert len({one["spec"]["pool"]["generation"] for one in found}) == 1
    pools = {
        d["attributes"]["pool_name"]["string"] for one in found for d in one["spec"]["devices"]
    }
    assert pools == {"q"}


async def test_dropped_fields_are_named_and_do_not_make_generations(kube, publisher):
    kube.off = ("taints", "allowMultipleAllocations")
    assert await publisher.publish(READING, STATE) == 1
    assert publisher.dropped == (
        "spec.devices[].allowMultipleAllocations",
        "spec.devices[].taints",
    )
    assert await publisher.publish(READING, STATE) == 1
    kube.off = ()
    await publisher.publish(READING, NodeState("n1", "u", pool="q"))
    assert publisher.dropped == ()


async def test_fields_that_an_upgraded_server_keeps_are_published_again(kube, publisher):
    kube.off = ("taints", "allowMultipleAllocations")
    assert await publisher.publish(READING, STATE) == 1
    kube.off = ()
    publisher.expect(ClusterObserved(revision=1, device_taints=True, consumable_capacity=True))
    assert await publisher.publish(READING, STATE) == 2
    assert publisher.dropped == ()
    ((device, _),) = [one["spec"]["devices"] for one in await published(kube)]
    assert device["taints"][0]["key"] == "tensor-fusion.ai/owner"
    assert device["allowMultipleAllocations"] is True
    assert await publisher.publish(READING, STATE) == 2


async def test_fields_that_the_server_still_drops_are_not_published_again(kube, publisher):
    kube.off = ("taints", "allowMultipleAllocations")
    assert await publisher.publish(READING, STATE) == 1
    publisher.expect(ClusterObserved(revision=1, device_taints=False, consumable_capacity=False))
    assert await publisher.publish(READING, STATE) == 1
    publisher.expect(ClusterObserved(revision=2, device_taints=False, consumable_capacity=True))
    assert publisher.dropped == ("spec.devices[].taints",)


async def test_other_drivers_and_other_nodes_slices_are_left_alone(kube, publisher):
    foreign = slices(READING, NodeState("n2", "u"), generation=1)[0]
    theirs = copy.deepcopy(slices(READING, STATE, generation=1)[0])
    theirs["metadata"]["name"], theirs["spec"]["driver"] = "theirs", "gpu.example.com"
    for one in (foreign, theirs):
        await kube.create(SLICES, one)
    await publisher.publish(READING, STATE)
    kept = {one["metadata"]["name"]: one["spec"] for one in (await kube.list(SLICES)).objects}
    assert len(kept) == 3
    for one in (foreign, theirs):
        assert kept[one["metadata"]["name"]] == one["spec"]


async def test_without_a_node_object_nothing_is_published(tmp_path):
    kube = MemoryKube()
    publisher = SlicePublisher(kube, "n1", PublicationRecordFile(tmp_path / "r"))
    with pytest.raises(NodeMissingError, match="DRAY_NODE__NAME"):
        await publisher.publish(READING, STATE)
    assert not (await kube.list(SLICES)).objects


def test_amounts_compare_by_value_and_taint_times_do_not_count():
    (desired,) = slices(READING, STATE, generation=1)
    kept = copy.deepcopy(desired)
    kept["spec"]["devices"][0]["capacity"]["tflops"]["value"] = "312000m"
    kept["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    assert is_published([desired], [kept], ())
    kept["spec"]["devices"][0]["capacity"]["tflops"]["value"] = "313"
    assert not is_published([desired], [kept], ())


def test_an_update_keeps_the_age_of_taints_and_is_fenced():
    (desired,) = slices(READING, STATE, generation=2)
    kept = copy.deepcopy(slices(READING, STATE, generation=1)[0])
    kept["metadata"] |= {"resourceVersion": "5", "uid": "u"}
    kept["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    (update,) = changes([desired], [kept]).updates
    assert update["metadata"]["resourceVersion"] == "5"
    taints = [device["taints"][0] for device in update["spec"]["devices"]]
    assert [taint.get("timeAdded") for taint in taints] == ["2026-01-01T00:00:00Z", None]
    assert update["spec"]["pool"]["generation"] == 2


def test_dropped_policies_are_found_below_every_capacity():
    (sent,) = slices(READING, STATE, generation=1)
    kept = copy.deepcopy(sent)
    for device in kept["spec"]["devices"]:
        for amount in device["capacity"].values():
            del amount["requestPolicy"]
    words = sorted(path_text(path) for path in dropped_fields(sent, kept))
    assert words[0] == "spec.devices[].capacity.tflops.requestPolicy"
    assert len(words) == 4


async def test_a_node_without_gpus_publishes_nothing(kube, publisher):
    nothing = GpuSnapshot(())
    assert [await publisher.publish(nothing, STATE) for _ in range(2)] == [1, 1]
    assert await published(kube) == []
    assert await publisher.publish(READING, STATE) == 2
    assert len(await published(kube)) == 1


async def test_a_drained_node_has_no_slices_until_it_may_be_used_again(kube, publisher):
    cordoned = replace(STATE, unschedulable=True)
    await publisher.publish(READING, STATE)
    assert await publisher.publish(READING, cordoned, {"gpu-of-a-pod": 0.0}) == 1
    assert len(await published(kube)) == 1
    assert [await publisher.publish(READING, cordoned) for _ in range(2)] == [2, 2]
    assert await published(kube) == []
    assert await publisher.publish(READING, STATE) == 3
    assert [one["spec"]["pool"]["generation"] for one in await published(kube)] == [3]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (STATE, 1),
        (replace(STATE, enforcement=Enforcement(enforcer=MIG)), 0),
        (replace(STATE, unschedulable=True), 0),
    ],
    ids=["shared", "mig", "drained"],
)
async def test_only_published_devices_are_reported_as_unhealthy(publisher, state, expected):
    """The claim-controller refuses a report that names others, and asks for it again and again."""
    card, other = READING.gpus
    sick = GpuSnapshot((msgspec.structs.replace(card, health_error="xid-79"), other))
    await publisher.publish(sick, state)
    assert publisher.unhealthy == (device_name(card.uuid),)[:expected]
