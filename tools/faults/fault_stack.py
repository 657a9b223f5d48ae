"""The stack for faults: a tenth of every timeout, two pools, two replicas."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dray.api.names import DRIVER, TEMPLATE_LABEL
from dray.kube.ports import NAMESPACES, POLICIES, POOLS, TEMPLATES, Kube, Object, Resource
from dray_sandbox.layout import ControlPlane, StackOptions, simulated_nodes
from dray_sandbox.paths import stack_directory
from dray_sandbox.stack import Stack
from tools.faults.plan import DEDICATED, GPUS_PER_NODE, NAMESPACE, SHARED, TENANT
from tools.retry import connect_with_retries

NODES = 4
FAST_SETTINGS: Mapping[str, str] = {
    "DRAY_LEASE__DURATION": "1500ms",
    "DRAY_LEASE__RENEW_DEADLINE": "1s",
    "DRAY_LEASE__RETRY": "200ms",
    "DRAY_EXECUTION__WATCH_TIMEOUT": "200ms",
    # Two tenths: a busy machine mostly binds in this time.
    "DRAY_EXECUTION__WITHDRAW_AFTER": "2s",
    "DRAY_EXECUTION__SCHEDULER_BACKOFF": "1s",
    "DRAY_EXECUTION__FINISH_AFTER": "200ms",
    "DRAY_EXECUTION__GIVE_UP_AFTER": "2s",
    "DRAY_EXECUTION__WITHDRAW_EVERY": "100ms",
    # Less than a tenth, because the end of a run waits for it.
    "DRAY_TEMPLATES__UNUSED_AFTER": "2s",
    "DRAY_TEMPLATES__COLLECT_EVERY": "500ms",
    "DRAY_GROUPS__GRACE": "6s",
    "DRAY_ALLOCATOR__GROUP_HOLD": "6s",
    "DRAY_PUBLISHING__TICK": "100ms",
    "DRAY_PUBLISHING__STATUS_EVERY": "100ms",
    "DRAY_ALLOCATOR__UNCOMMITTED_AFTER": "3s",
    "DRAY_ALLOCATOR__VOID_REPEAT": "500ms",
    "DRAY_ALLOCATOR__EXCLUSION": "3s",
    "DRAY_ALLOCATOR__CHECKPOINT_INTERVAL": "5s",
    "DRAY_ALLOCATOR__WAITING_REPEAT": "1s",
    # The bus counts a lease's TTL in whole seconds.
    "DRAY_ALLOCATOR__LEASE_TTL": "1s",
    "DRAY_ALLOCATOR__LEASE_RENEWAL": "300ms",
    "DRAY_NODE__POLL": "200ms",
    "DRAY_NODE__RESYNC": "3s",
    "DRAY_NODE__PATIENCE": "500ms",
    "DRAY_NODE__SWEEP": "5s",
}
"""Settings of all services: a tenth of their defaults unless a comment says otherwise."""


def options(control_plane: ControlPlane, name: str) -> StackOptions:
    """A stack with two replicas of each replicated service, and small nodes."""
    return StackOptions(
        name=name,
        control_plane=control_plane,
        nodes=simulated_nodes(
            NODES, gpus=GPUS_PER_NODE, models=("A100",), pools=(DEDICATED, SHARED)
        ),
        node_capacity={"cpu": "6", "memory": "64Gi", "pods": "110"},
        allocators=2,
        claim_controllers=2,
        settings=FAST_SETTINGS,
        wipe_slices_after_s=3.0,
    )


class FaultStack:
    """Runs a stack that seeds share; after a failed seed, the next one gets a new stack."""

    def __init__(self, control_plane: ControlPlane, name: str = "") -> None:
        self.control_plane: ControlPlane = control_plane
        self._options = options(control_plane, name or f"faults-{control_plane}")
        self._stack: Stack | None = None

    async def stack(self) -> Stack:
        """The running stack with its pools; started if there is none."""
        if self._stack is None:
            self._stack = Stack(self._options)
            await self._stack.start()
            async with connected(self._stack) as kube:
                await create_pools(kube)
        return self._stack

    async def stop(self) -> list[str]:
        """Stop the stack; returns the remaining processes and sockets."""
        if self._stack is None:
            return []
        stack, self._stack = self._stack, None
        ever = stack.runner.pids()
        await stack.stop()
        return _remaining_processes(ever) + _sockets(stack.directory)

    def copy_logs(self, seed: int) -> Path:
        """Copy the logs to a folder that no later stack empties."""
        source = stack_directory(self._options.name)
        kept = source.parent / f"{self._options.name}-seed-{seed}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(source / "logs", kept / "logs")
        return kept


@asynccontextmanager
async def connected(stack: Stack) -> AsyncIterator[Kube]:
    """The stack's API with the administrator's rights."""
    kube = await connect_with_retries(stack.record.kubeconfig, user_agent="dray-faults")
    try:
        yield kube
    finally:
        await kube.close()


async def create_pools(kube: Kube) -> None:
    """Create a policy, a dedicated and a shared pool, and base templates in two namespaces."""
    policy = "default-scheduling-config"
    dra = {"enable": True, "resourceClaimTemplateName": "base"}
    request = {
        "name": "gpu-request",
        "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1},
    }
    bases = [
        {"name": "base", "namespace": namespace, "labels": {TEMPLATE_LABEL: "true"}}
        for namespace in (NAMESPACE, TENANT)
    ]
    objects: list[tuple[Resource, Object]] = [
        (
            POLICIES,
            {
                "metadata": {"name": policy},
                "spec": {"dra": dra, "placement": {"mode": "CompactFirst"}},
            },
        ),
        (NAMESPACES, {"metadata": {"name": TENANT}}),
        *(
            (TEMPLATES, {"metadata": base, "spec": {"spec": {"devices": {"requests": [request]}}}})
            for base in bases
        ),
        (POOLS, _pool(DEDICATED, policy, dedicated=True)),
        (POOLS, _pool(SHARED, policy, default=True)),
    ]
    for resource, obj in objects:
        await kube.create(resource, obj)


def _pool(name: str, policy: str, **spec: bool) -> Object:
    return {"metadata": {"name": name}, "spec": {"schedulingConfigTemplate": policy, **spec}}


def _remaining_processes(processes: Mapping[str, int]) -> list[str]:
    """Processes that still run."""
    return [
        f"process {pid} of {name} still runs after its stack stopped"
        for name, pid in processes.items()
        if Path(f"/proc/{pid}").exists()
    ]


def _sockets(directory: Path) -> list[str]:
    return [f"socket {path} was left" for path in directory.rglob("*") if path.is_socket()]
