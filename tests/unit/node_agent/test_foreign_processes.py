"""Processes on a GPU that no claim explains."""

from msgspec.structs import replace

from dray_node_agent.decisions.foreign_processes import foreign_gpus, with_users
from dray_node_agent.decisions.gpus import GpuProcess, GpuUsage, device_name
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

SNAPSHOT = SimulatedGpus("n1", "A100", 3).read()
CARD = SNAPSHOT.gpus[0]
INSTANCE = replace(CARD, uuid="MIG-1", parent_uuid=CARD.uuid)
DIVIDED = replace(SNAPSHOT, gpus=(CARD, INSTANCE, *SNAPSHOT.gpus[1:]))


def busy(*gpus):
    return [GpuUsage(gpu.uuid, processes=(GpuProcess(7),)) for gpu in gpus]


def test_a_busy_gpu_without_a_claim_has_foreign_processes():
    first, second, third = SNAPSHOT.gpus
    usage = [*busy(first, second), GpuUsage(third.uuid)]
    assert foreign_gpus(SNAPSHOT, usage, {device_name(first.uuid)}) == {second.uuid}
    assert foreign_gpus(SNAPSHOT, [], ()) == frozenset()


def test_a_gpu_that_can_not_be_read_is_judged_as_before():
    first, second, third = SNAPSHOT.gpus
    usage, before = [GpuUsage(third.uuid)], frozenset(gpu.uuid for gpu in SNAPSHOT.gpus)
    claimed = {device_name(second.uuid)}
    assert foreign_gpus(SNAPSHOT, usage, claimed, before) == {first.uuid}


def test_a_claim_of_an_instance_explains_its_card_and_of_a_card_its_instances():
    for claimed in (INSTANCE, CARD):
        usage = busy(CARD, INSTANCE)
        assert foreign_gpus(DIVIDED, usage, {device_name(claimed.uuid)}) == frozenset()
    assert foreign_gpus(DIVIDED, busy(CARD, INSTANCE), ()) == {CARD.uuid, INSTANCE.uuid}


def test_the_device_says_so():
    marked = with_users(SNAPSHOT, {CARD.uuid})
    (published,) = slices(marked, NodeState("n1"), generation=1)
    attributes = [one["attributes"]["used_by"] for one in published["spec"]["devices"]]
    assert attributes == [{"string": "processes"}, {"string": ""}, {"string": ""}]
