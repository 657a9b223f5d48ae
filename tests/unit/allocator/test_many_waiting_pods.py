"""What a node that comes and goes costs, if many pods wait."""

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.api.pods import PodClaim
from dray.bus.payload import MINIMUM_BYTES
from dray.messages.decisions import Waiting, encode_record
from dray_allocator.state.scheduling_queue import SchedulingQueue

PODS = 300
MINUTES = 5


def crowded(world, pods=PODS):
    """A full card, and pods of one signature that wait for it."""
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("holder"), world.ask("312", "40Gi"))
    for number in range(pods):
        world.submit(world.a_pod(f"p{number}"))
    return world


def on(node):
    """A small share of the node's card."""
    device = DeviceId(names.DRIVER, node, f"{node}-gpu0")
    share = {"virtual_tflops": "1", "virtual_vram": "1Mi"}
    return Allocation((AllocatedDevice(names.GPU_REQUEST, device, "share", share),), node)


def recorded(world):
    return [record for record in world.logs["pool"] if isinstance(record, Waiting)]


def flap(world, seconds):
    """Every second a node whose card is too small is cordoned, or is back."""
    for second in range(seconds):
        world.node(world.a_node("n2", unschedulable=bool(second % 2)))
        world.tick()


def test_one_record_tells_the_reasons_of_all_pods_of_a_signature(world):
    crowded(world)
    before = len(recorded(world))
    world.nodes(world.a_node("n2", unschedulable=True), tflops="10")
    world.tick()
    [record] = recorded(world)[before:]
    assert [one.pod_uid for one in record.by_pod()] == sorted(f"p{n}" for n in range(PODS))
    assert {one.reasons for one in record.by_pod()} == {record.reasons}


def test_a_node_that_comes_and_goes_costs_few_records_however_many_pods_wait(make_world):
    counts = []
    for pods in (3, PODS):
        world = crowded(make_world().open(), pods)
        world.nodes(world.a_node("n2", unschedulable=True), tflops="10")
        before = len(recorded(world))
        flap(world, MINUTES * 60)
        counts.append(len(recorded(world)) - before)
    few, many = counts
    assert few == many
    # Six at once, then as many as there are periods of ten seconds.
    assert 1 <= many <= 6 + MINUTES * 6


def test_pods_that_can_run_on_one_node_alone_cost_as_few_records_while_it_comes_and_goes(
    make_world,
):
    """Nothing tells what helps such pods, so that each of them is tried after every change."""
    counts = []
    for pods in (3, 30):
        world = make_world().open()
        world.nodes(world.a_node("n2"))
        for number in range(pods):
            one = world.a_pod(f"p{number}")
            there = replace(world.a_claim(one.uid, world.ask("1", "1Mi")), uid=f"there-{number}")
            world.claim(replace(there, name=f"there-{number}", allocation=on("n2")))
            claims = (*one.claims, PodClaim("there", f"there-{number}", "template"))
            world.submit(replace(one, claims=claims), world.ask("312", "40Gi"))
        before = len(recorded(world))
        for second in range(60):
            world.node(world.a_node("n2", unschedulable=bool(second % 2)))
            world.tick()
        counts.append(len(recorded(world)) - before)
        for _ in range(30):
            world.tick()
        last = {world.waits(f"p{number}")[-1].reasons for number in range(pods)}
        assert len(last) == 1, "the last reasons are those of all"
        assert last == {world.waits("p0")[-1].reasons}
    few, many = counts
    assert few == many
    assert 1 <= many <= 6 + 6


def test_after_a_node_has_come_and_gone_often_the_last_reasons_are_right(world):
    crowded(world, 3)
    world.nodes(world.a_node("n2", unschedulable=True), tflops="10")
    flap(world, 120)
    world.node(world.a_node("n2", unschedulable=True))
    for _ in range(30):
        world.tick()
    crowd = crowded(type(world)().open(), 3)
    crowd.nodes(crowd.a_node("n2", unschedulable=True), tflops="10")
    for _ in range(30):
        crowd.tick()
    for number in range(3):
        uid = f"p{number}"
        assert world.waits(uid)[-1].reasons == crowd.waits(uid)[-1].reasons


def test_a_pod_whose_reasons_were_recorded_alone_leaves_those_of_no_other_stale(world):
    crowded(world, 3)
    world.nodes(world.a_node("n2", unschedulable=True), tflops="10")
    # It precedes the others, and is tried before the tick.
    world.submit(world.a_pod("first", priority=5))
    for _ in range(30):
        world.tick()
    first = world.waits("first")[-1].reasons
    assert [world.waits(f"p{number}")[-1].reasons for number in range(3)] == [first] * 3


def test_pods_with_long_texts_share_no_record_that_is_too_long_for_the_bus(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("holder"), world.ask("312", "40Gi"))
    pods = [world.a_pod(f"p{number}", request_id="x" * 200_000) for number in range(10)]
    for one in pods:
        world.submit(one)
    before = len(recorded(world))
    world.nodes(world.a_node("n2", unschedulable=True), tflops="10")
    world.tick()
    records = recorded(world)[before:]
    assert max(len(encode_record(record)) for record in records) < MINIMUM_BYTES
    named = [one.pod_uid for record in records for one in record.by_pod()]
    assert named == [one.uid for one in pods]


def test_the_queue_forgets_pods_that_are_gone_although_one_waits_for_ever():
    queue, signature = SchedulingQueue(), b"signature"
    waits = ["first", "last"]
    for place, uid in ((0, "first"), (2, "last")):
        queue.add(uid, (0, place, uid), activate=False)
        queue.add_unschedulable(uid, signature)
    for number in range(1000):
        # One that comes back, too: its claim may have been missing.
        for uid in (f"p{number}", "again"):
            queue.add(uid, (0, 1, uid), activate=False)
            queue.add_unschedulable(uid, signature)
            queue.remove(uid)
    assert queue.unschedulable(signature) == waits
    assert list(queue._unschedulable_as) == waits
    assert len(queue.unschedulable_pods[signature]) < 10
    for uid in waits:
        assert queue.first_unschedulable(signature) == uid
        queue.remove(uid)
    assert queue.first_unschedulable(signature) is None
    assert not queue.unschedulable_pods
