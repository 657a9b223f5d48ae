"""``dray up`` and ``dray down``: a pod runs in between, and nothing is left after."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controlplane.waiting import until

from dray.kube.api import connect
from dray.kube.ports import (
    CLAIMS,
    POD_GROUPS,
    POLICIES,
    POOLS,
    SLICES,
    AlreadyExistsError,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_sandbox.controlplane.build import find_kubectl
from dray_sandbox.paths import stack_directory
from dray_sandbox.stack_file import is_alive, read_stack_file
from tools.retry import connect_with_retries

PODS = Resource("", "v1", "pods", "Pod")
STARTS_WITHIN_S = 240
POOL: Object = {
    "apiVersion": "tensor-fusion.ai/v1",
    "kind": "GPUPool",
    "metadata": {"name": "my-gpu-pool"},
    "spec": {"schedulingConfigTemplate": "on"},
}
POLICY: Object = {
    "apiVersion": "tensor-fusion.ai/v1",
    "kind": "SchedulingConfigTemplate",
    "metadata": {"name": "on"},
    "spec": {"dra": {"enable": True}},
}
GROUP: Object = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train"},
    "spec": {"minMember": 2},
}
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "worker",
        "namespace": "default",
        "annotations": {
            "tensor-fusion.ai/tflops-request": "100",
            "tensor-fusion.ai/vram-request": "16Gi",
            "tensor-fusion.ai/gpupool": "my-gpu-pool",
        },
    },
    "spec": {"containers": [{"name": "c", "image": "busybox"}]},
}


def dray(*arguments: str, code: int = 0) -> Any:
    """What the command prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "dray_cli", *arguments, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=STARTS_WITHIN_S,
        env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
    )
    assert done.returncode == code, done.stderr or done.stdout[-3000:]
    return json.loads(done.stdout) if done.stdout else done.stderr


def dray_well(*arguments: str) -> Any:
    """What the doctor prints once all is well: leases are looked at every two seconds."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return dray(*arguments)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@pytest.fixture(scope="module", params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def stack(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    name = f"test-{request.param}-{os.getpid()}"
    up = ("up", "--detach", "--nodes", "1", "--stack", name, "--control-plane", request.param)
    try:
        yield dray(*up)
    finally:
        dray("down", "--stack", name)
        shutil.rmtree(stack_directory(name), ignore_errors=True)
        stack_directory(name).with_suffix(".log").unlink(missing_ok=True)


async def configured(kube: Kube) -> None:
    """A pool with the node, and its policy, if they are not there yet. The base template is the
    stack's, in dray's namespace."""
    for resource, obj in ((POLICIES, POLICY), (POOLS, POOL)):
        with contextlib.suppress(AlreadyExistsError):
            await kube.create(resource, obj, obj["metadata"].get("namespace", ""))


@pytest.mark.timeout(STARTS_WITHIN_S + 60)
async def test_an_annotated_pod_runs_and_its_claim_goes_with_it(stack: dict[str, Any]) -> None:
    kube = await connect_with_retries(stack["kubeconfig"], user_agent="test")
    try:
        await configured(kube)
        await kube.create(PODS, POD, "default")
        running = await until(kube, PODS, "worker", lambda pod: pod["status"]["phase"] == "Running")
        (reference,) = running["status"]["resourceClaimStatuses"]
        claim = await kube.get(CLAIMS, reference["resourceClaimName"], "default")
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        sold = {"virtual_tflops": "100", "virtual_vram": "16Gi"}
        assert sold.items() <= result["consumedCapacity"].items()
        await kube.delete(PODS, "worker", "default")
        with pytest.raises(NotFoundError):
            await until(kube, CLAIMS, claim["metadata"]["name"], lambda obj: False)
    finally:
        await kube.close()


@pytest.mark.timeout(STARTS_WITHIN_S + 60)
async def test_a_pool_of_kube_scheduler_says_whether_anybody_allocates(
    stack: dict[str, Any],
) -> None:
    """The sandbox's scheduler does not; so the pool is not ready there, and takes no pods."""
    kube = await connect_with_retries(stack["kubeconfig"], user_agent="test")
    real = stack["controlPlane"] == "real"
    pool = {"metadata": {"name": "theirs"}, "spec": {"owner": "kube-scheduler"}}
    try:
        await kube.create(POOLS, pool)
        seen = await until(kube, POOLS, "theirs", lambda obj: "conditions" in obj.get("status", {}))
        (ready,) = [one for one in seen["status"]["conditions"] if one["type"] == "Ready"]
        assert ready["reason"] == ("NoNodes" if real else "NoAllocatingScheduler")
        annotations = {**POD["metadata"]["annotations"], "tensor-fusion.ai/gpupool": "theirs"}
        pod = {**POD, "metadata": {"name": "refused", "annotations": annotations}}
        if not real:
            with pytest.raises(RefusedError, match="of this cluster allocates no devices"):
                await kube.create(PODS, pod, "default")
    finally:
        await kube.delete(POOLS, "theirs")
        await kube.close()


@pytest.mark.parametrize("stack", ["sandbox"], indirect=True)
@pytest.mark.timeout(STARTS_WITHIN_S + 60)
async def test_the_doctor_names_a_claim_whose_status_was_edited_by_hand(
    stack: dict[str, Any],
) -> None:
    deep = ("doctor", "--deep", "--kubeconfig", stack["kubeconfig"])
    kube = await connect(stack["kubeconfig"], user_agent="test")
    try:
        await configured(kube)
        await kube.create(PODS, {**POD, "metadata": {**POD["metadata"], "name": "edited"}})
        running = await until(kube, PODS, "edited", lambda pod: pod["status"]["phase"] == "Running")
        assert (await asyncio.to_thread(dray_well, *deep))["differences"] == []
        (reference,) = running["status"]["resourceClaimStatuses"]
        name = reference["resourceClaimName"]
        before, after = await moved_by_hand(kube, name)

        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + 60
        while not found:  # the log may still take note of the moment without an allocation
            assert time.monotonic() < deadline
            found = (await asyncio.to_thread(dray, *deep, code=1))["differences"]

        assert [one["kind"] for one in found] == ["another-allocation"]
        assert found[0]["about"] == f"claim default/{name}"
        assert found[0]["devices"] == sorted(f"{card} on sim-1" for card in (before, after))
        assert found[0]["sides"][0]["says"].startswith(f"{after} on sim-1")
        assert found[0]["sides"][1]["who"] == "log of my-gpu-pool"
        assert before in found[0]["sides"][1]["says"]
    finally:
        await kube.delete(PODS, "edited", "default")
        await kube.close()


@pytest.mark.parametrize("stack", ["sandbox"], indirect=True)
@pytest.mark.timeout(STARTS_WITHIN_S + 60)
async def test_the_doctor_finds_replicas_equal_while_a_group_starts_and_loses_a_pod(
    stack: dict[str, Any],
) -> None:
    """The decision on a group, and what is held for it, are the same for all who read the log."""
    deep = ("doctor", "--deep", "--kubeconfig", stack["kubeconfig"])
    kube = await connect_with_retries(stack["kubeconfig"], user_agent="test")

    async def phase(wanted: str) -> None:
        await until(kube, POD_GROUPS, "train", lambda obj: _phase(obj) == wanted)
        assert (await asyncio.to_thread(dray_well, *deep))["differences"] == []

    try:
        await configured(kube)
        await kube.create(POD_GROUPS, GROUP, "default")
        await kube.create(PODS, _member("train-0"), "default")
        await phase("Inqueue")
        await kube.create(PODS, _member("train-1"), "default")
        await phase("Running")
        await kube.delete(PODS, "train-1", "default")
        await phase("Unknown")
        await kube.create(PODS, _member("train-2"), "default")
        await phase("Running")
    finally:
        for name in ("train-0", "train-1", "train-2"):
            with contextlib.suppress(NotFoundError):
                await kube.delete(PODS, name, "default")
        await kube.delete(POD_GROUPS, "train", "default")
        await kube.close()


def _member(name: str) -> Object:
    """A pod of the group."""
    joined = {"scheduling.k8s.io/group-name": "train"}
    annotations = {**POD["metadata"]["annotations"], **joined}
    return {**POD, "metadata": {"name": name, "annotations": annotations}}


def _phase(group: Object) -> str:
    return str((group.get("status") or {}).get("phase"))


async def moved_by_hand(kube: Kube, name: str) -> tuple[str, str]:
    """Write another card into an allocated claim's status; the card before, and after."""
    claim = await kube.get(CLAIMS, name, "default")
    status = claim["status"]
    (result,) = status["allocation"]["devices"]["results"]
    (part,) = (await kube.list(SLICES)).objects
    before = result["device"]
    after = next(card["name"] for card in part["spec"]["devices"] if card["name"] != before)
    result["device"] = after
    # As the API server wants it: an allocation is not changed, but removed and set again.
    await kube.update(CLAIMS, {**claim, "status": {}}, subresource="status")
    await kube.patch(CLAIMS, name, {"status": status}, "default", subresource="status")
    return before, after


def kubectl(stack: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = find_kubectl()
    assert program is not None, "make test-real builds one"
    return subprocess.run(
        [program, "--kubeconfig", stack["kubeconfig"], *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.real  # on the sandbox, too: the kubectl is the control plane's, if PATH has none
@pytest.mark.timeout(STARTS_WITHIN_S + 60)
def test_real_kubectl_works_on_it(stack: dict[str, Any]) -> None:
    done = kubectl(stack, "get", "nodes,resourceslices")
    assert done.returncode == 0, done.stderr
    assert "node/sim-1" in done.stdout
    assert "tensor-fusion.ai.dra-driver" in done.stdout


@pytest.mark.real
@pytest.mark.timeout(STARTS_WITHIN_S + 60)
@pytest.mark.parametrize(
    "asked",
    [("logs", "plain"), ("exec", "plain", "--", "env"), ("port-forward", "plain", ":80")],
)
async def test_logs_and_commands_are_refused_with_what_runs_containers(
    stack: dict[str, Any], asked: tuple[str, ...]
) -> None:
    kube = await connect_with_retries(stack["kubeconfig"], user_agent="test")
    try:
        plain = {"metadata": {"name": "plain"}, "spec": POD["spec"]}
        await kube.create(PODS, plain, "default")
        await until(kube, PODS, "plain", lambda pod: pod["status"]["phase"] == "Running")

        refused = await asyncio.to_thread(kubectl, stack, *asked)

        assert "`dray up --kubelet real`" in refused.stderr
        await kube.delete(PODS, "plain", "default", grace_period_s=0)
    finally:
        await kube.close()


@pytest.mark.parametrize("stack", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
@pytest.mark.timeout(STARTS_WITHIN_S + 60)
async def test_a_service_may_do_no_more_than_its_work(stack: dict[str, Any]) -> None:
    """On the real one alone: the sandbox's API has no RBAC."""
    folder = Path(stack["kubeconfig"]).parent
    kube = await connect(str(folder / "dray-node-agent.kubeconfig"), user_agent="test")
    try:
        with pytest.raises(RefusedError) as refusal:
            await kube.create(PODS, POD, "default")
        assert refusal.value.status == 403
    finally:
        await kube.close()


@pytest.mark.timeout(STARTS_WITHIN_S + 60)
def test_a_second_stack_of_the_same_name_is_refused_with_how_to_use_the_first(
    stack: dict[str, Any],
) -> None:
    output = dray("up", "--detach", "--stack", stack["name"], code=1)
    assert "is already running" in output
    assert f"export KUBECONFIG={stack['kubeconfig']}" in output


@pytest.mark.timeout(STARTS_WITHIN_S + 60)
def test_a_killed_process_is_started_again(stack: dict[str, Any]) -> None:
    name = stack["name"]
    before = processes_of(name)
    for process in ("allocator", "nats-server"):
        subprocess.run(
            [sys.executable, "-m", "dray_cli", "kill", process, "--stack", name], check=True
        )
    deadline = time.monotonic() + 120
    while not all(
        (now := processes_of(name)[process])["restarts"] and now["state"] in ("ready", "running")
        for process in ("allocator", "nats-server")
    ):
        assert time.monotonic() < deadline, processes_of(name)
    assert processes_of(name)["allocator"]["pid"] != before["allocator"]["pid"]
    assert processes_of(name)["webhook"] == before["webhook"]


def processes_of(name: str) -> dict[str, Any]:
    """What `dray status` says of each process; its exit code says the same, shorter."""
    done = subprocess.run(
        [sys.executable, "-m", "dray_cli", "status", "--stack", name, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    processes = json.loads(done.stdout)["processes"]
    fine = all(one["state"] in ("ready", "running") for one in processes)
    assert done.returncode == (0 if fine else 1)
    return {one["name"]: one for one in processes}


def test_wrong_use_has_exit_code_2() -> None:
    assert "node label" in dray("up", "--node-label", "nonsense", code=2)


def test_nothing_is_left_of_a_stack_that_was_ended(stack: dict[str, Any]) -> None:
    """It ends the stack that the others used."""
    name = stack["name"]
    recorded = read_stack_file(name)
    assert recorded is not None
    processes = (recorded.supervisor, *recorded.processes)
    assert [process.name for process in recorded.processes] == [
        process["name"] for process in stack["processes"]
    ]
    assert all(is_alive(process) for process in processes)
    assert dray("down", "--stack", name) == {"name": name, "stopped": True}
    assert not any(is_alive(process) for process in processes)
    assert read_stack_file(name) is None
    assert dray("down", "--stack", name) == {"name": name, "stopped": False}


@pytest.mark.timeout(STARTS_WITHIN_S + 60)
async def test_a_stack_that_is_kept_continues_with_its_objects(stack: dict[str, Any]) -> None:
    """The last test of this module: the stack has ended before."""
    name = stack["name"]
    continued = await asyncio.to_thread(
        dray, "up", "--detach", "--nodes", "1", "--stack", name, "--keep"
    )
    assert continued["controlPlane"] == stack["controlPlane"]
    kube = await connect_with_retries(continued["kubeconfig"], user_agent="test")
    try:
        assert (await kube.get(POLICIES, "on"))["spec"]["dra"]["enable"]
        await kube.create(PODS, {**POD, "metadata": {**POD["metadata"], "name": "later"}})
        await until(kube, PODS, "later", lambda pod: pod["status"]["phase"] == "Running")
    finally:
        await kube.close()
    other = {"real": "sandbox", "sandbox": "real"}[stack["controlPlane"]]
    assert dray("down", "--stack", name)["stopped"]
    text = await asyncio.to_thread(
        dray, "up", "--detach", "--stack", name, "--keep", "--control-plane", other, code=1
    )
    assert "control plane in its last run" in text
