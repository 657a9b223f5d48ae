"""Gives containers that use the device plugin the GPUs of their pod's claim when they start.

``Allocate`` does not say for which pod it is called, so it answers with the name of a CDI device
that does not exist yet. ``PreStartContainer`` comes before each start of the container, and by then
the kubelet's pod resources API says which pod has the ids: the claim of that pod is prepared, and
the CDI device is written. If dray did not decide about a pod, its containers do not start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from dray.api.errors import DrayError
from dray.api.names import GPU_RESOURCE, OWNER_DRAY
from dray.api.pods import TERMINAL_PHASES, accounting_claim
from dray.kube.ports import CLAIMS, PODS, Kube, NotFoundError, NotServedError, Object
from dray_node_agent.decisions.cdi import CONTAINER_KIND, spec_of
from dray_node_agent.decisions.claim_devices import NotPreparedError
from dray_node_agent.decisions.device_plugin import (
    DeviceSlot,
    container_edits,
    container_of,
    plugin_devices,
    require_decision,
    require_match,
)
from dray_node_agent.decisions.gpus import device_name
from dray_node_agent.decisions.inventory import NodeInventory
from dray_node_agent.decisions.listed_containers import ListedContainer
from dray_node_agent.decisions.mps_daemons import shared_devices
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.plugin_records import PluginRecords
from dray_node_agent.kubelet.preparer import ClaimRef, Preparer
from dray_node_agent.node_pods import NodePods

_RELEASE_EVERY_S: Final = 1.0
"""How often the agent checks which pods have ended."""


@dataclass(frozen=True, slots=True)
class PluginSources:
    """What the device plugin reads."""

    inventory: Callable[[], NodeInventory | None]
    enforcement_problem: Callable[[str], str]
    """Why a device's enforcer is not ready; empty: it is."""
    changed: Callable[[], Awaitable[None]]
    """Waits for the next change of any device's health."""
    refresh: Callable[[], Awaitable[object]]
    """Reads again which claims other agents of the node have prepared."""
    allocated: Callable[[], Awaitable[Sequence[ListedContainer]]]
    """Lists the ids that the kubelet has given to containers."""


class PluginContainers:
    """The containers of this node that get GPUs through the device plugin."""

    def __init__(
        self,
        kube: Kube,
        pods: NodePods,
        preparer: Preparer,
        records: PluginRecords,
        cdi: CdiFolder,
        sources: PluginSources,
    ) -> None:
        self._kube = kube
        self._pods = pods
        self._preparer = preparer
        self._records = records
        self._cdi = cdi
        self._sources = sources
        self._log = structlog.get_logger()

    @property
    def is_offered(self) -> bool:
        """Whether the node's GPUs are known, and dray allocates them."""
        inventory = self._sources.inventory()
        return inventory is not None and inventory.state.owner == OWNER_DRAY

    async def devices(self, resource: str) -> tuple[DeviceSlot, ...]:
        """The ids of a resource now."""
        inventory = self._sources.inventory()
        if inventory is None:
            return ()
        gpus = shared_devices(inventory.snapshot)
        names = {device_name(gpu.uuid): gpu.health_error for gpu in gpus}
        unhealthy = [
            name
            for name, error in names.items()
            if error or self._sources.enforcement_problem(name)
        ]
        records = await asyncio.to_thread(self._records.all)
        claims = self._preparer.claims
        held = {
            first_id: [device.device for device in claims[record.claim_uid].devices]
            for first_id, record in records.items()
            if record.claim_uid in claims
        }
        return plugin_devices(resource, len(gpus), unhealthy, held)

    async def changed(self) -> None:
        """Wait for the next change of any device's health."""
        await self._sources.changed()

    async def allocate(self, ids: Collection[str]) -> str:
        """The CDI device of a container that gets ``ids``. Raises OSError."""
        record = await asyncio.to_thread(self._records.add, min(ids))
        return f"{CONTAINER_KIND}={record.cdi_device}"

    async def start(self, resource: str, ids: Collection[str]) -> None:
        """Write the CDI device of a container that is about to start. Raises DrayError, OSError."""
        container = container_of(await self._sources.allocated(), resource, ids)
        # The watch may still show an earlier pod of the same name, which has lost its GPUs.
        pod = await self._kube.get(PODS, container.pod, container.namespace)
        require_decision(pod, resource)
        claim = await self._prepared(pod)
        inventory = self._sources.inventory()
        gpus = {} if inventory is None else inventory.published_gpus
        uuids = {device: published.gpu.uuid for device, published in gpus.items()}
        require_match(pod, claim, uuids, len(ids) if resource == GPU_RESOURCE else None)
        await asyncio.to_thread(self._write, min(ids), claim)

    async def release(self) -> None:
        """Loop: unprepare the claims of pods that have ended. The kubelet does not ask for it."""
        while True:
            try:
                await self._release_once()
            except (DrayError, OSError) as error:
                self._log.info("release postponed", error=str(error))
            await asyncio.sleep(_RELEASE_EVERY_S)

    async def _release_once(self) -> None:
        await self._sources.refresh()
        for claim in self._preparer.claims.values():
            pod_uid = claim.name.removeprefix(accounting_claim(""))
            if claim.name == accounting_claim(pod_uid) and await self._has_ended(claim, pod_uid):
                await self._preparer.unprepare([ClaimRef(claim.namespace, claim.uid, claim.name)])
        # A container that starts meanwhile makes a record, prepares a claim, and writes a file.
        files = await asyncio.to_thread(self._cdi.claims)
        records = await asyncio.to_thread(self._records.all)
        claims = self._preparer.claims
        for first_id, record in records.items():
            if record.claim_uid and record.claim_uid not in claims:
                self._cdi.remove(record.cdi_device)
                self._records.remove(first_id, record)
        for name in {*files} - {record.cdi_device for record in records.values()}:
            self._cdi.remove(name)

    async def _has_ended(self, claim: PreparedClaim, pod_uid: str) -> bool:
        pod = self._pods.get(pod_uid)
        if pod is not None:
            return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES
        if not self._pods.are_listed:
            return False
        # The watch may be behind. Kubernetes deletes the claim once its pod is gone.
        try:
            await self._kube.get(CLAIMS, claim.name, claim.namespace)
        except NotServedError:
            raise
        except NotFoundError:
            return True
        return False

    async def _prepared(self, pod: Object) -> PreparedClaim:
        metadata = pod["metadata"]
        name = accounting_claim(metadata["uid"])
        obj = await self._kube.get(CLAIMS, name, metadata["namespace"])
        ref = ClaimRef(metadata["namespace"], obj["metadata"]["uid"], name)
        prepared = (await self._preparer.prepare([ref]))[ref.uid]
        if isinstance(prepared, str):
            raise NotPreparedError(prepared)
        return prepared

    def _write(self, first_id: str, claim: PreparedClaim) -> None:
        record = self._records.get(first_id)
        if record is None:
            raise NotPreparedError(
                f"node-agent has no record of {first_id}, which the kubelet gave to a container: "
                "delete the pod and create it again"
            )
        # The record comes first: after a crash another pod with these ids gets another CDI device.
        self._records.assign(first_id, claim.uid)
        device = {"name": record.cdi_device, "containerEdits": container_edits(claim)}
        self._cdi.write(record.cdi_device, spec_of([device], kind=CONTAINER_KIND))
