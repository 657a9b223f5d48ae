"""The stack that is upgraded: what is on it before and under way meanwhile, and what was seen."""

from dataclasses import dataclass
from typing import Any

from tests.conformance.stand import NAMESPACE, Stand, phase_of

from dray.bus.ports import Bus
from dray.kube.ports import BIND_REQUESTS, CLAIMS, POOLS, Object, RefusedError
from dray.messages.decisions import log_stream
from dray.messages.facts import ClusterObserved
from tools.faults.plan import DEDICATED, SHARED

BEFORE = ("early-1", "early-2")
FLYING = ("flying-1", "flying-2")
"""Created right before the API server goes; each in a pool where a card is free for it."""
BUSY = "busy"
"""Their pool, dedicated."""
WAITING = "early-waits"
"""Wants both cards of the dedicated pool whole, before and after."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What must be the same after the upgrade."""

    pods: dict[str, tuple[str, str]]
    """Uid and node by name."""
    allocations: dict[str, Object]
    """By claim uid."""
    bind_requests: dict[str, str]
    """Phase by name."""
    epochs: dict[str, int]
    """Of each pool."""
    records: dict[str, list[bytes]]
    """Of each pool's decision log."""
    pids: dict[str, int]


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The stack after the upgrade, and what was seen before it."""

    stand: Stand
    before: Seen
    kept_before: ClusterObserved
    kept: ClusterObserved
    denial: str
    """Why a pod of the shared pool was denied before; empty if it was not."""


async def upgrade(stand: Stand, binary: Any) -> Upgraded:
    """Have pods on the stack, and change the version of its Kubernetes."""
    kept_before = await stand.until(stand.published, "the first probe")
    await _ready(stand)
    for name in BEFORE:
        await stand.submit(name, DEDICATED)
    await stand.running(*BEFORE)
    await stand.submit(WAITING, DEDICATED, gpu_count="2", vram_request="40Gi")
    await stand.until(lambda: waits(stand, WAITING), "dray says why the greedy pod waits")
    denial = await _denial(stand)

    async def reported() -> bool:
        listed = await stand.kube.list(BIND_REQUESTS, NAMESPACE)
        phases = [
            _reported_phase(one) for one in listed.objects if one["metadata"]["name"] != WAITING
        ]
        return len(phases) >= len(BEFORE) and set(phases) == {"Succeeded"}

    await stand.until(reported, "all BindRequests Succeeded")
    before = await see(stand)
    for name in FLYING:
        await stand.submit(name, BUSY)
    await stand.stack.change_version(binary)

    async def asked_again() -> ClusterObserved | None:
        now = await stand.published()
        return now if now is not None and binary.version in now.version else None

    kept = await stand.until(asked_again, "the claim-controller asks the new server")
    return Upgraded(stand, before, kept_before, kept, denial)


async def _denial(stand: Stand) -> str:
    """Why a pod of the shared pool can't be; empty when it runs."""
    try:
        await stand.submit("early-shared", SHARED)
    except RefusedError as error:
        return str(error)
    await stand.running("early-shared")
    return ""


async def _ready(stand: Stand) -> None:
    """Wait for both pools' logs and for the slices."""

    async def holds() -> bool:
        pools = (await stand.kube.list(POOLS)).objects
        opened = [pool.get("status", {}).get("decisionLog") for pool in pools]
        return len(opened) == 3 and all(opened) and len(await stand.devices()) == 6

    await stand.until(holds, "all pools are served")


async def see(stand: Stand) -> Seen:
    """What is there now."""
    kube = stand.kube
    claims = (await kube.list(CLAIMS, NAMESPACE)).objects
    allocated = [claim for claim in claims if claim.get("status", {}).get("allocation")]
    requests = (await kube.list(BIND_REQUESTS, NAMESPACE)).objects
    epochs = {
        pool["metadata"]["name"]: int(pool["status"]["decisionLog"]["epoch"])
        for pool in (await kube.list(POOLS)).objects
    }
    return Seen(
        pods={
            name: (pod["metadata"]["uid"], pod["spec"]["nodeName"])
            for name, pod in (await stand.pods()).items()
            if phase_of(pod) == "Running"
        },
        allocations={
            claim["metadata"]["uid"]: claim["status"]["allocation"] for claim in allocated
        },
        bind_requests={one["metadata"]["name"]: _reported_phase(one) for one in requests},
        epochs=epochs,
        records={pool: await _records(stand.bus, pool, epoch) for pool, epoch in epochs.items()},
        pids=stand.stack.runner.pids(),
    )


def _reported_phase(bind_request: Object) -> str:
    return str(bind_request.get("status", {}).get("phase", ""))


async def _records(bus: Bus, pool: str, epoch: int) -> list[bytes]:
    found: list[bytes] = []
    async for delivered in bus.read(log_stream(pool, epoch)):
        found.append(delivered.payload)
        if delivered.pending == 0:
            break
    return found


async def waits(stand: Stand, name: str) -> bool:
    """Whether the pod has a reason to wait."""
    listed = await stand.kube.list(BIND_REQUESTS, NAMESPACE)
    (found,) = [one for one in listed.objects if one["metadata"]["name"] == name] or [{}]
    return bool(found.get("status", {}).get("explanation"))
