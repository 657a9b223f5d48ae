"""The clusters on which rows are measured: each has its own control plane and fleet, with or
without dray, and starts empty on the same machine."""

import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.control_plane_fleet import (
    DEDICATED,
    NAMESPACE,
    POOL,
    Size,
    base_template,
    derived_template,
    held_claims,
    state_of,
)
from benchmarks.node_fleet import NodeFleet, run_limited
from dray.bus.jetstream import connect as connect_bus
from dray.kube.api import connect as connect_kube
from dray.kube.ports import CLAIMS, NAMESPACES, POLICIES, POOLS, TEMPLATES, Kube, Object
from dray_sandbox.access import make_credentials
from dray_sandbox.controlplane.build import build
from dray_sandbox.controlplane.launch import API_SERVER, start_control_plane
from dray_sandbox.layout import StackOptions
from dray_sandbox.objects import Installer, documents
from dray_sandbox.paths import checkout, stack_directory
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.stack import Stack

NAME = "bench"
PROFILED = ("claim-controller", "allocator", "webhook")
_SAMPLED = 0.01
"""Share of pods with a trace, as an installation of this size would have it."""
GROUPS_SERVED = ("scheduling.k8s.io/v1beta1",)
GROUP_GATES = ("GenericWorkload", "DRAWorkloadResourceClaims")
"""Gates of Kubernetes PodGroups, which 1.37 has but does not serve by default."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane with its fleet, ready for pods."""

    kube: Kube
    kubeconfig: Path
    """The administrator's."""
    pids: Mapping[str, int]


class _Programs(Runner):
    """Programs as they are measured: no audit log, and a profiler around services on request."""

    def __init__(self, logs: Path, profile: Path | None = None) -> None:
        super().__init__(logs)
        self._profile = profile

    async def start(self, program: ProcessSpec) -> None:
        argv = program.argv
        if program.name == API_SERVER:
            argv = tuple(one for one in argv if not one.startswith("--audit-"))
        elif program.name in PROFILED and self._profile is not None:
            python, _, *module = argv
            argv = (python, "-m", "benchmarks.sampled", str(self._profile), *module)
        await super().start(replace(program, argv=argv))


@contextlib.asynccontextmanager
async def cluster_of(
    size: Size, progress: Progress, profile: Path | None, *, dray: bool
) -> AsyncIterator[Cluster]:
    """Start a cluster, create its nodes and the claims that hold their cards; stop it at the end.

    ``profile``: the folder for profiles of dray's services; None: no profiles.
    """
    starting = _with_dray(size, progress, profile) if dray else _without_dray(size, progress)
    async with starting as cluster:
        await _hold(cluster.kube, size, progress)
        yield cluster


@contextlib.asynccontextmanager
async def _without_dray(size: Size, progress: Progress) -> AsyncIterator[Cluster]:
    folder = stack_directory(NAME)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    async with contextlib.AsyncExitStack() as stack:
        runner = _Programs(folder / "logs")
        stack.push_async_callback(runner.stop_all)
        credentials = make_credentials(folder / "access")
        binary = await build(progress)
        endpoint = await start_control_plane(
            runner,
            binary,
            folder / "kubernetes",
            credentials,
            context=NAME,
            serve=GROUPS_SERVED if size.gang else (),
            feature_gates=GROUP_GATES if size.gang else (),
        )
        chart = checkout() / "deploy" / "helm" / "dray" / "files" / "deviceclass.yaml"
        async with Installer(endpoint) as installer:
            await installer.apply(documents(chart))
        kube = await connect_kube(str(endpoint.admin_kubeconfig), user_agent=NAME)
        stack.push_async_callback(kube.close)
        await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await kube.create(TEMPLATES, derived_template(), NAMESPACE)
        nodes = NodeFleet(kube, size.simulated(), state_of=lambda node: state_of(node, dray=False))
        await nodes.publish(_every(size.nodes, "nodes", progress))
        yield Cluster(kube, endpoint.admin_kubeconfig, runner.pids())


@contextlib.asynccontextmanager
async def _with_dray(
    size: Size, progress: Progress, profile: Path | None
) -> AsyncIterator[Cluster]:
    settings = {"DRAY_WEBHOOK__SAMPLING_RATIO": str(_SAMPLED)}
    options = StackOptions(
        name=NAME,
        control_plane="real",
        workloads=False,
        settings=settings,
        serve=GROUPS_SERVED if size.gang else (),
        feature_gates=GROUP_GATES if size.gang else (),
    )
    running = Stack(options, progress)
    running.runner = _Programs(running.directory / "logs", profile)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running)
        record = running.record
        kube = await connect_kube(record.kubeconfig, user_agent=NAME)
        stack.push_async_callback(kube.close)
        bus = await connect_bus(
            record.nats_url, name=NAME, user="admin", password=record.nats_passwords["admin"]
        )
        stack.push_async_callback(bus.close)
        await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await kube.create(TEMPLATES, base_template(), NAMESPACE)
        policy = {"metadata": {"name": POOL}, "spec": {"dra": {"enable": True}}}
        await kube.create(POLICIES, policy)
        spec = {"dedicated": True, "schedulingConfigTemplate": POOL}
        await kube.create(POOLS, {"metadata": {"name": POOL}, "spec": spec})
        fleet = NodeFleet(
            kube,
            size.simulated(),
            bus=bus,
            state_of=lambda node: state_of(node, dray=True),
            taints=(DEDICATED,),
        )
        await fleet.publish(_every(size.nodes, "nodes", progress))
        yield Cluster(kube, Path(record.kubeconfig), running.runner.pids())


async def _hold(kube: Kube, size: Size, progress: Progress) -> None:
    """Write the claims that hold cards, and their statuses."""
    reported, done = _every(size.nodes, "held claims", progress), 0

    async def one(held: tuple[Object, Object]) -> None:
        nonlocal done
        claim, status = held
        await kube.create(CLAIMS, claim, NAMESPACE)
        await kube.patch(CLAIMS, claim["metadata"]["name"], status, NAMESPACE, subresource="status")
        done += 1
        reported(done)

    await run_limited(one, held_claims(size))


def _every(total: int, what: str, progress: Progress) -> Callable[[int], None]:
    def reported(count: int) -> None:
        if count % 1000 == 0 or count == total:
            progress(f"  {count} of {total} {what}")

    return reported
