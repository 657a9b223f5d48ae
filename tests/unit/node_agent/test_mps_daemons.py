"""Pods of MPS daemons: one per device, out of reach of tenants, never replaced under a claim."""

import asyncio
import json
from unittest.mock import Mock

from structlog.testing import capture_logs

from dray.api.enforcement import Enforcement
from dray.kube.ports import RefusedError
from dray_node_agent.agent import NodeAgent
from dray_node_agent.decisions.gpus import device_name, with_problems
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.mps_daemons import daemon_pod, plan_daemons
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.files.agent_locks import AgentLock
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile
from dray_node_agent.gpus.reader import GpuReader
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.kubelet.prepared_claims import PreparedClaims
from dray_node_agent.mps_daemons import MpsDaemons
from dray_node_agent.settings import NodeGroup

SNAPSHOT = SimulatedGpus("n1", "A100", 2).read()
DEVICES = [device_name(gpu.uuid) for gpu in SNAPSHOT.gpus]
TEMPLATE = {
    "metadata": {"labels": {"team": "gpu"}},
    "spec": {
        "containers": [{"name": "mps", "image": "i", "env": [{"name": "A", "value": "b"}]}],
        "volumes": [{"name": "driver", "hostPath": {"path": "/"}}],
    },
}
NAMESPACE = "dray-system"


def state(enforcer="mps", **more):
    return NodeState("n1", "uid", "pool", enforcement=Enforcement(enforcer=enforcer, **more))


def plan(pods=(), *, of=None, in_use=(), template=TEMPLATE):
    return plan_daemons(
        SNAPSHOT,
        of or state(),
        template=template,
        namespace=NAMESPACE,
        pods=pods,
        in_use=in_use,
    )


def running(number=0, *, of=None, ready=True, phase="Running", **metadata):
    pod = daemon_pod(TEMPLATE, SNAPSHOT.gpus[number], of or state(), NAMESPACE)
    pod["metadata"] |= {"uid": f"u{number}", **metadata}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return pod | {"status": {"phase": phase, "conditions": conditions}}


def test_every_device_gets_a_pod_with_the_pools_defaults():
    of = state(mps_threads_percent=40, mps_memory="8Gi")
    first, second = plan(of=of).creates
    assert [one["metadata"]["name"] for one in (first, second)] == [
        f"dray-mps-daemon-{device}" for device in DEVICES
    ]
    spec = first["spec"]
    assert spec["nodeName"] == "n1"
    assert {one["name"]: one["value"] for one in spec["containers"][0]["env"]} == {
        "A": "b",
        "CUDA_VISIBLE_DEVICES": SNAPSHOT.gpus[0].uuid,
        "NVIDIA_VISIBLE_DEVICES": SNAPSHOT.gpus[0].uuid,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }
    assert [one["name"] for one in spec["volumes"]] == ["driver", "mps", "shm"]
    assert first["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert len(TEMPLATE["spec"]["containers"][0]["env"]) == 1


def test_a_device_has_a_problem_until_its_daemon_is_ready():
    planned = plan([running(0), running(1, ready=False)])
    assert (planned.creates, planned.deletes) == ((), ())
    assert list(planned.problems) == [DEVICES[1]]
    assert "does not answer" in planned.problems[DEVICES[1]]
    snapshot = with_problems(SNAPSHOT, planned.problems)
    assert [bool(gpu.health_error) for gpu in snapshot.gpus] == [False, True]


def test_without_a_template_no_device_is_offered_and_the_problem_says_what_to_install():
    planned = plan(template=None)
    assert planned.creates == ()
    assert all("nodeAgent.mps.enabled" in why for why in planned.problems.values())
    assert len(planned.problems) == 2


def test_a_daemon_with_old_parameters_is_replaced_once_no_claim_is_on_its_device():
    pods = [running(0), running(1)]
    changed = state(mps_threads_percent=10)
    held = plan(pods, of=changed, in_use=DEVICES)
    assert (held.creates, held.deletes, held.problems) == ((), (), {})
    free = plan(pods, of=changed, in_use=DEVICES[1:])
    assert [one["metadata"]["uid"] for one in free.deletes] == ["u0"]
    assert list(free.problems) == [DEVICES[0]]
    ending = [running(0, deletionTimestamp="now"), running(1)]
    assert plan(ending, of=changed, in_use=DEVICES[1:]).creates == ()
    (made,) = plan(pods[1:], of=changed, in_use=DEVICES[1:]).creates
    assert made["metadata"]["labels"]["tensor-fusion.ai/mps-device"] == DEVICES[0]


def test_daemons_end_with_the_last_claim_once_the_pool_has_another_enforcer():
    planned = plan([running(0), running(1)], of=state("none"), in_use=DEVICES[:1])
    assert [one["metadata"]["uid"] for one in planned.deletes] == ["u1"]
    assert planned.problems == {}


def test_an_ended_daemon_is_replaced_even_under_claims():
    planned = plan([running(0, phase="Failed"), running(1)], in_use=DEVICES)
    assert [one["metadata"]["uid"] for one in planned.deletes] == ["u0"]
    assert list(planned.problems) == [DEVICES[0]]


def test_a_pod_of_a_tenant_that_calls_itself_a_daemon_counts_for_nothing():
    theirs = running(0, namespace="tenant")
    planned = plan([theirs, running(1)])
    assert planned.deletes == ()
    assert len(planned.creates) == 1
    assert list(planned.problems) == [DEVICES[0]]


def test_a_card_with_mig_instances_has_daemons_for_these_alone():
    card = SNAPSHOT.gpus[0]
    instance = card.__class__(uuid="MIG-1", product="p", memory_bytes=2**33, parent_uuid=card.uuid)
    snapshot = SNAPSHOT.__class__((*SNAPSHOT.gpus, instance))
    planned = plan_daemons(
        snapshot, state(), template=TEMPLATE, namespace=NAMESPACE, pods=(), in_use=()
    )
    devices = [one["metadata"]["labels"]["tensor-fusion.ai/mps-device"] for one in planned.creates]
    assert devices == [DEVICES[1], "mig-1"]


class Pods:
    """The pods of the node. The pods of daemons are out of date."""

    are_listed = True

    def all(self):
        return [running(number, of=state(mps_threads_percent=10)) for number in (0, 1)]


class Deleted(list):
    """The pods that were deleted."""

    async def delete(self, resource, name, namespace, *, uid):
        self.append(uid)


async def test_a_daemon_stays_under_a_claim_that_another_agent_prepared(tmp_path):
    def claims():
        lock = AgentLock(tmp_path / "lock")
        return PreparedClaims(CheckpointFile(tmp_path / "file", "boot"), CdiFolder(tmp_path), lock)

    async def nothing():
        return {}

    ours, theirs = claims(), claims()
    await ours.restore(nothing)
    used = PreparedDevice(request="gpu", pool="n1", device=DEVICES[0], cdi_ids=())
    claim = PreparedClaim(
        uid="c", namespace="ns", name="n", phase="PrepareCompleted", devices=(used,), cdi={}
    )
    await theirs.restore(nothing)
    await theirs.enter("c", lambda _: claim)
    deleted = Deleted()
    template = tmp_path / "pod.yaml"
    template.write_text(json.dumps(TEMPLATE))
    daemons = MpsDaemons(
        deleted, Pods(), namespace=NAMESPACE, template=template, in_use=ours.devices
    )
    assert list(await daemons.apply(SNAPSHOT, state())) == [DEVICES[1]]
    assert deleted == ["u1"]


async def test_an_agent_without_the_right_to_end_daemons_asks_once_and_goes_on():
    asked = []

    class Refusing:
        async def delete(self, resource, name, namespace, *, uid):
            asked.append(name)
            raise RefusedError("pods is forbidden", 403)

    async def nobody():
        return ()

    daemons = MpsDaemons(Refusing(), Pods(), namespace=NAMESPACE, template=None, in_use=nobody)
    with capture_logs() as logs:
        for _ in range(3):
            assert await daemons.apply(SNAPSHOT, state("none")) == {}
    assert asked == [f"dray-mps-daemon-{device}" for device in DEVICES]
    first, _ = logs
    assert f"kubectl delete pod -n {NAMESPACE} {asked[0]}" in first["event"]


async def test_nothing_is_set_up_before_earlier_claims_are_known():
    applied = asyncio.Event()

    class NotingEnforcement:
        async def apply(self, snapshot, state):
            applied.set()
            return {}

    class Restoring:
        async def restore(self):
            pass

        start = restore

        async def stop(self, grace):
            pass

    agent = NodeAgent(
        node=NodeGroup(name="n1"),
        gpus=GpuReader(SimulatedGpus("n1", "A100", 2)),
        publisher=None,
        reporter=Mock(),
        enforcement=NotingEnforcement(),
    )
    agent.on_state(state())
    loops = [asyncio.create_task(one) for one in (agent.watch_gpus(), agent.enforce())]
    await asyncio.sleep(0.05)
    assert not applied.is_set()
    loops.append(asyncio.create_task(agent.serve(Restoring(), Restoring())))
    await applied.wait()
    for loop in loops:
        loop.cancel()
