"""A long search continues while the replica does everything else."""

from dray.api.pods import Policy
from dray.messages.decisions import Waiting
from dray.messages.facts import PolicyObserved
from dray_allocator.cycle import step


async def test_others_are_decided_and_a_pod_that_fits_nowhere_has_a_reason(
    memory_cluster, eventually, monkeypatch
):
    monkeypatch.setattr(step, "STEP_LOOKS", 2)
    policy = Policy("policy", "u", placement="KubernetesCompatible", version=2)
    await memory_cluster.publish(PolicyObserved(revision=2, policy=policy))
    one = await memory_cluster.replica("one")
    for number in range(10):
        await memory_cluster.node(f"n{number}", cards=1 + number)
    await eventually(lambda: one.serves)

    await memory_cluster.submit("long", "41Gi")
    await memory_cluster.submit("short")

    async def decided() -> bool:
        return [made.pod_uid for made in await memory_cluster.decisions()] == ["short"]

    async def is_reported() -> bool:
        log = await memory_cluster.log()
        return any(isinstance(record, Waiting) and record.pod_uid == "long" for record in log)

    await eventually(decided)
    await eventually(is_reported)
    await eventually(lambda: not one.state.unfinished)
    await one.stop()
