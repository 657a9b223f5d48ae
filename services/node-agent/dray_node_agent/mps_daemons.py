"""Creates and deletes the pods of the node's MPS daemons."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import yaml

from dray.api.enforcement import MPS
from dray.kube.ports import (
    NODES,
    PODS,
    AlreadyExistsError,
    Kube,
    KubeError,
    NotFoundError,
    Object,
    RefusedError,
)
from dray_node_agent.decisions.gpus import GpuSnapshot, device_name
from dray_node_agent.decisions.inventory import NodeState
from dray_node_agent.decisions.mps_daemons import DEVICE_LABEL, plan_daemons, shared_devices
from dray_node_agent.files.agent_locks import LockHeldError
from dray_node_agent.node_pods import NodePods


class MpsDaemons:
    """The daemons of one node. ``template``: file with the manifest of a daemon's pod; ``in_use``:
    the devices with claims that any agent of the node has prepared."""

    def __init__(
        self,
        kube: Kube,
        pods: NodePods,
        *,
        namespace: str,
        template: Path | None,
        in_use: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        self._kube = kube
        self._pods = pods
        self._namespace = namespace
        self._template = template
        self._in_use = in_use
        self._kept: set[str] = set()
        """UIDs of daemons that this agent has no right to delete."""
        self._log = structlog.get_logger()

    async def apply(self, snapshot: GpuSnapshot, state: NodeState) -> dict[str, str] | None:
        """Create and delete pods as planned. Returns, by device, why its daemon can't be used now;
        None: not known yet."""
        if not self._pods.are_listed:
            return None
        try:
            template = None
            if state.enforcement.enforcer == MPS and self._template is not None:
                template = await asyncio.to_thread(_read, self._template)
            owner = replace(state, uid=state.uid or await self._node_uid(state.name))
        except (OSError, ValueError, KubeError) as error:
            why = f"its MPS daemon can't be set up: {error}"
            return {device_name(gpu.uuid): why for gpu in shared_devices(snapshot)}
        plan_for = partial(
            plan_daemons, snapshot, owner, template=template, namespace=self._namespace
        )
        plan = plan_for(pods=self._pods.all(), in_use=())
        if plan.deletes:
            try:
                in_use = await self._in_use()
            except (LockHeldError, OSError) as error:
                self._log.info("MPS daemons postponed", error=str(error))
                return None
            plan = plan_for(pods=self._pods.all(), in_use=in_use)
        problems = dict(plan.problems)
        for pod in plan.deletes:
            if pod["metadata"]["uid"] not in self._kept:
                await self._delete(pod)
        for pod in plan.creates:
            if (problem := await self._create(pod)) is not None:
                problems[pod["metadata"]["labels"][DEVICE_LABEL]] = problem
        return problems

    async def _create(self, pod: Object) -> str | None:
        name = pod["metadata"]["name"]
        try:
            await self._kube.create(PODS, pod, self._namespace)
        except AlreadyExistsError:
            return None  # not seen yet, or created by another agent of this node
        except KubeError as error:
            return f"its MPS daemon can't be started: {error}"
        self._log.info("MPS daemon started", pod=name)
        return None

    async def _delete(self, pod: Object) -> None:
        metadata = pod["metadata"]
        try:
            await self._kube.delete(PODS, metadata["name"], self._namespace, uid=metadata["uid"])
            self._log.info("MPS daemon ended", pod=metadata["name"])
        except NotFoundError:
            pass
        except RefusedError as error:
            self._kept.add(metadata["uid"])
            self._log.warning(
                "MPS daemon stays: this agent may not delete it (chart: nodeAgent.mps.enabled); "
                f"delete it with `kubectl delete pod -n {self._namespace} {metadata['name']}`",
                error=str(error),
            )
        except KubeError as error:
            self._log.warning("MPS daemon not ended", pod=metadata["name"], error=str(error))

    async def _node_uid(self, node: str) -> str:
        return str((await self._kube.get(NODES, node))["metadata"]["uid"])


def _read(file: Path) -> dict[str, Any]:
    """The template. Raises OSError, ValueError."""
    try:
        found = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not YAML: {error}") from error
    spec = found.get("spec") if isinstance(found, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not (containers and isinstance(containers, list) and all(map(_is_object, containers))):
        raise ValueError(f"{file} is not the manifest of a pod: expected spec.containers")
    return dict(found)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
