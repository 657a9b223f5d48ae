"""What an uninstallation removes: everything that dray wrote, and nothing that people made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.api.errors import PermanentError
from dray.api.names import (
    ALLOCATION_GATE,
    DEDICATED_TAINT,
    DERIVED_FROM_LABEL,
    DRIVER,
    GPU_LABEL,
    MPS_DAEMON,
    NAME_LABEL,
    POOL_FINALIZER,
)
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    LEASES,
    NODES,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    TEMPLATES,
    Kube,
    NotFoundError,
    Object,
    Resource,
)
from dray.runtime.backoff import Backoff
from dray_cli.chart.registration import DEPLOYMENTS
from dray_cli.chart.secrets import PART
from dray_cli.operator_secret import SECRETS

_CONTROLLER, NODE_AGENT = "dray-claim-controller", "dray-node-agent"
_NAMED = 5
"""How many pods an error names."""


class InUseError(PermanentError):
    """Pods still use GPUs that dray's node-agents prepared."""


async def refuse_while_in_use(kube: Kube) -> None:
    """Raises InUseError if pods use dray's GPUs: to end one, the kubelet needs the node-agent."""
    claims = (await kube.list(CLAIMS)).objects
    if users := sorted(pod for claim in claims for pod in users_of(claim)):
        named = ", ".join(users[:_NAMED]) + (", …" if len(users) > _NAMED else "")
        raise InUseError(
            f"{len(users)} pods use GPUs of dray ({named}): without its node-agents they could not "
            "end. Delete them, then uninstall again; `helm uninstall --no-hooks` removes "
            "nothing that dray wrote"
        )


def users_of(claim: Object) -> Iterator[str]:
    """``namespace/name`` of the pods for which a claim holds devices of dray's driver."""
    status = claim.get("status") or {}
    results = status.get("allocation", {}).get("devices", {}).get("results") or ()
    if any(one["driver"] == DRIVER for one in results):
        for user in status.get("reservedFor") or ():
            if user["resource"] == "pods":
                yield f"{claim['metadata']['namespace']}/{user['name']}"


async def stop_controllers(kube: Kube, namespace: str) -> None:
    """Scale the claim-controllers to 0, and wait: they would write again what is removed."""
    patch = {"spec": {"replicas": 0}}
    try:
        await kube.patch(DEPLOYMENTS, _CONTROLLER, patch, namespace, subresource="scale")
    except NotFoundError:
        return
    await _ended(kube, namespace, _CONTROLLER)


async def _ended(kube: Kube, namespace: str, component: str) -> None:
    """Wait until no pod of a component is left."""
    selector = f"app.kubernetes.io/name={component}"
    backoff = Backoff(0.2, 2.0)
    while (await kube.list(PODS, namespace, label_selector=selector)).objects:
        await backoff.pause()
    click.echo(f"{component}: no pod is left")


@dataclass(frozen=True, slots=True)
class Undo:
    """One write; a patch of None is a deletion."""

    resource: Resource
    namespace: str
    name: str
    patch: dict[str, Any] | None


async def take_back(kube: Kube) -> None:
    """Remove dray's finalizers, labels, taints, templates and BindRequests."""
    for resource in (POOLS, POLICIES, NODES, TEMPLATES, BIND_REQUESTS):
        await _take_back_all(kube, resource)
    gated = [pod for pod in (await kube.list(PODS)).objects if is_gated(pod)]
    if gated:
        click.echo(f"{len(gated)} pods keep dray's scheduling gate and wait: delete them")


async def take_back_slices(kube: Kube, namespace: str) -> None:
    """Delete the ResourceSlices once the node-agents have ended: they would write them again."""
    await _ended(kube, namespace, NODE_AGENT)
    await _take_back_all(kube, SLICES)


async def end_mps_daemons(kube: Kube, namespace: str) -> None:
    """Delete the pods of MPS daemons, which outlive the node-agents that made them."""
    ended = 0
    for pod in (await kube.list(PODS)).objects:
        metadata = pod["metadata"]
        name = (metadata.get("labels") or {}).get(NAME_LABEL)
        if metadata["namespace"] == namespace and name == MPS_DAEMON:
            await kube.delete(PODS, metadata["name"], namespace)
            ended += 1
    if ended:
        click.echo(f"{ended} MPS daemons ended")


async def _take_back_all(kube: Kube, resource: Resource) -> None:
    done = 0
    for obj in (await kube.list(resource)).objects:
        if (undo := undo_of(resource, obj)) is not None:
            await _write(kube, undo)
            done += 1
    click.echo(f"{resource.plural}: {done} taken back")


def undo_of(resource: Resource, obj: Object) -> Undo | None:
    """The write that removes dray's changes from an object, or None."""
    metadata = obj["metadata"]
    labels, spec = metadata.get("labels") or {}, obj.get("spec") or {}
    patch: dict[str, Any] | None = None
    is_ours = True
    if resource in (POOLS, POLICIES):
        finalizers = metadata.get("finalizers") or []
        others = [one for one in finalizers if one != POOL_FINALIZER]
        is_ours = len(others) < len(finalizers)
        patch = {"metadata": {"finalizers": others or None}}
    elif resource is NODES:
        taints = spec.get("taints") or []
        others = [taint for taint in taints if taint["key"] != DEDICATED_TAINT]
        is_ours = len(others) < len(taints) or GPU_LABEL in labels
        patch = {"metadata": {"labels": {GPU_LABEL: None}}, "spec": {"taints": others or None}}
    elif resource is TEMPLATES:
        is_ours = DERIVED_FROM_LABEL in labels
    elif resource is SLICES:
        is_ours = spec.get("driver") == DRIVER
    undo = Undo(resource, metadata.get("namespace", ""), metadata["name"], patch)
    return undo if is_ours else None


def is_gated(pod: Object) -> bool:
    """Whether a pod waits for dray's allocation."""
    gates = pod["spec"].get("schedulingGates") or ()
    return any(gate["name"] == ALLOCATION_GATE for gate in gates)


async def _write(kube: Kube, undo: Undo) -> None:
    if undo.patch is None:
        await kube.delete(undo.resource, undo.name, undo.namespace)
        return
    try:
        await kube.patch(undo.resource, undo.name, undo.patch, undo.namespace)
    except NotFoundError:
        return


async def forget(kube: Kube, namespace: str, names: Sequence[str]) -> None:
    """Delete the installation's Secrets, and the claim-controllers' Lease."""
    for name in names:
        try:
            found = await kube.get(SECRETS, name, namespace)
        except NotFoundError:
            continue
        if PART.items() <= (found["metadata"].get("labels") or {}).items():
            await kube.delete(SECRETS, name, namespace)
            click.echo(f"Secret {name}: deleted")
    await kube.delete(LEASES, _CONTROLLER, namespace)
