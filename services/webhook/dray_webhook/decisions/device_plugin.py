"""Pods that get their GPUs through the device plugin, without Dynamic Resource Allocation.

Such a pod refers to no claim. Its containers ask for a resource of the device plugin, so that the
kubelet calls the plugin: ``nvidia.com/gpu`` if the resource is a number of whole cards, else one
``tensor-fusion.ai/gpu-share``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dray.api.names import (
    CONTAINER_GPU_COUNT,
    CONTAINER_GPUS,
    DRA_ENABLED,
    GPU_IDS,
    GPU_RESOURCE,
    GPU_SHARE_RESOURCE,
)
from dray.api.pods import Pool
from dray.kube.convert_pods import has_accounting_claim
from dray_webhook.decisions.annotations import GpuRequest
from dray_webhook.decisions.containers import ContainerAssignment, containers_of
from dray_webhook.decisions.gpu_resources import taking_turns, without_resources
from dray_webhook.decisions.review import Object

_GPU_IDS_VARIABLE = "TENSOR_FUSION_GPU_IDS"
WITHOUT_CLAIMS = f'the pod gets its GPUs without claims ({DRA_ENABLED} is not "true")'


@dataclass(frozen=True, slots=True)
class PluginAmount:
    """What a container asks the device plugin for."""

    resource: str
    count: int


PluginRequest = Mapping[str, PluginAmount]
"""By container."""


def without_plugin_resources(pod: Object) -> Object:
    """The pod without the resources that only dray writes: the API server sends a pod again if
    another webhook changed it, and users may not take shares that nothing counts."""
    whole = (GPU_RESOURCE,) if has_accounting_claim(pod) else ()
    return without_resources(pod, (GPU_SHARE_RESOURCE, *whole))


def plugin_request(
    spec: Object, containers: ContainerAssignment, asked: GpuRequest
) -> PluginRequest:
    """What the containers of a pod ask the device plugin for. An init container passes its ids on
    to the container that comes after it."""
    every = [one.get("name", "") for one in containers_of(spec)]
    names = every if containers.sharing is None else containers.sharing
    lasting = {*names} - taking_turns(spec)
    if asked.whole and len(lasting) == 1:
        return dict.fromkeys(names, PluginAmount(GPU_RESOURCE, asked.count))
    return dict.fromkeys(names, PluginAmount(GPU_SHARE_RESOURCE, 1))


def plugin_conflicts(
    spec: Object, pool: Pool, containers: ContainerAssignment, *, gated: bool, refers: bool
) -> Iterator[str]:
    """Why the pod can't get its GPUs through the device plugin. ``gated``: whether kube-scheduler
    would bind it; ``refers``: whether it refers to a claim of dray."""
    if gated:
        yield (
            f"{WITHOUT_CLAIMS}, and kube-scheduler would bind it without knowing their node: name "
            "a GPUPool with spec.dedicated: true, leave out what only kube-scheduler reads, or set "
            f'{DRA_ENABLED}: "true" (GPUPool "{pool.name}")'
        )
    if containers.own:
        yield (
            f"{WITHOUT_CLAIMS}, and its containers ask for GPUs of their own, which only claims "
            f"can tell apart: leave out {CONTAINER_GPUS} and {CONTAINER_GPU_COUNT}, ask for the "
            f'GPUs in one container, or set {DRA_ENABLED}: "true"'
        )
    if refers:
        yield (
            f"{WITHOUT_CLAIMS}, and refers to a claim of dray in spec.resourceClaims: leave the "
            f'entry out, or set {DRA_ENABLED}: "true"'
        )
    lasting = {one.get("name", "") for one in spec.get("containers") or ()}
    if containers.sharing is not None and not lasting & {*containers.sharing}:
        yield (
            f"{WITHOUT_CLAIMS}, and only init containers get them, but the kubelet lists only "
            f'other containers: name one of these, or set {DRA_ENABLED}: "true"'
        )


def ask_device_plugin(spec: Object, request: PluginRequest) -> None:
    """Add the resource and a variable with the GPUs to the containers."""
    for container in containers_of(spec):
        if (amount := request.get(container.get("name", ""))) is None:
            continue
        resources = container["resources"] = dict(container.get("resources") or {})
        for amounts in ("limits", "requests"):
            resources[amounts] = {
                **(resources.get(amounts) or {}),
                amount.resource: str(amount.count),
            }
        env = [one for one in container.get("env") or () if one.get("name") != _GPU_IDS_VARIABLE]
        field = {"fieldPath": f"metadata.annotations['{GPU_IDS}']"}
        container["env"] = [*env, {"name": _GPU_IDS_VARIABLE, "valueFrom": {"fieldRef": field}}]
