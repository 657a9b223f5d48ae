"""One node with its kubelet and its node-agent, and what tests do with it.

Claims are allocated by the test itself, so that nothing but the node is at work.
"""

import asyncio
import contextlib
import json
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.labels import Holders, holders_of, listed_by
from tests.conformance.stand import NAMESPACE, Stand

from dray.api.names import DRIVER
from dray.kube.ports import CLAIMS, EVENTS, PODS, SLICES, NotFoundError, Object
from dray_sandbox.controlplane.build import find_kubectl

NODE = "sim-1"
GPUS = 4
AGENT = f"node-agent-{NODE}"
CDI_ANNOTATION = "sandbox.dray.dev/cdi"
FAILED = "FailedPrepareDynamicResources"
ON_BOTH = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
"""The marks of a module's tests: ``pytestmark = ON_BOTH``."""


@dataclass(slots=True)
class NodeStand(Stand):
    """The node of a stack. ``is_real``: containerd runs its containers, else none runs."""

    is_real: bool = False
    made: list[str] = field(default_factory=list)
    """Pods and claims of the test at hand."""
    shares_cards: bool = True
    """Whether the API server keeps what shared cards need."""
    shows_health: bool = True
    """Whether the kubelet shows the health of devices in pods."""
    devices_at_first: list[str] = field(default_factory=list)
    """Names of the GPUs by their index; kube-scheduler's pools order them by use later."""

    @property
    def kubelet(self) -> str:
        """Name of the kubelet's process."""
        return f"kubelet-{NODE}" if self.is_real else "kubelet"

    @property
    def folder(self) -> Path:
        """The node's files, as this machine sees them."""
        return self.stack.nodes_directory / NODE

    @property
    def state_dir(self) -> Path:
        return self.folder / ("dray/node-agent" if self.is_real else "state")

    @property
    def cdi_dir(self) -> Path:
        return self.folder / ("run/cdi" if self.is_real else "cdi")

    @property
    def registry_dir(self) -> Path:
        return self.folder / ("kubelet/plugins_registry" if self.is_real else "r")

    async def holders(self) -> Holders:
        """Who has which GPUs, by the agent's metrics."""
        return await holders_of(self.stack.runner.program(AGENT).health_url)

    async def listed(self) -> Holders:
        """The same by the kubelet."""
        root = self.folder / "kubelet" if self.is_real else self.folder
        return await listed_by(root / "pod-resources" / "kubelet.sock")

    def cdi_files(self) -> list[str]:
        """The claims with a CDI file."""
        prefix = "tensor-fusion.ai-gpu_"
        found = self.cdi_dir.glob(f"{prefix}*.json")
        return sorted(path.stem.removeprefix(prefix) for path in found)

    def checkpoint(self) -> dict[str, Any]:
        """The prepared claims on disk, by UID."""
        try:
            content = json.loads((self.state_dir / "checkpoint.json").read_text())
        except FileNotFoundError:
            return {}
        return dict(content["data"]["claims"])

    async def device(self, index: int = 0) -> str:
        """Name of a published GPU."""
        if self.devices_at_first:
            return self.devices_at_first[index]

        async def published() -> list[Object]:
            listed = await self.kube.list(SLICES, field_selector=f"spec.nodeName={NODE}")
            return [one for part in listed.objects for one in part["spec"].get("devices") or ()]

        devices = await self.until(published, "the GPUs are published")
        self.devices_at_first = [str(one["name"]) for one in devices]
        return self.devices_at_first[index]

    def claims_at_once(self, wanted: int) -> list[int]:
        """A GPU for each of so many claims, or of fewer where cards are not shared."""
        return [index % GPUS for index in range(wanted if self.shares_cards else GPUS)]

    async def claim(
        self, name: str, gpus: Sequence[int] = (0,), *, tflops: str = "10", **parameters: Any
    ) -> Object:
        """A claim that has these GPUs in shares. ``parameters``: its limits."""
        requests = [
            {"name": f"gpu-{index}", "exactly": {"deviceClassName": DRIVER}}
            for index in range(len(gpus))
        ]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        await self.kube.create(CLAIMS, claim, NAMESPACE)
        self.made.append(name)
        results = [
            {
                "request": f"gpu-{index}",
                "driver": DRIVER,
                "pool": NODE,
                "device": await self.device(gpu),
                "shareID": _share_id(),
                "consumedCapacity": {"virtual_tflops": tflops, "virtual_vram": "1Gi"},
            }
            for index, gpu in enumerate(gpus)
        ]
        devices: Object = {"results": results}
        if parameters:
            opaque = {
                "driver": DRIVER,
                "parameters": {
                    "apiVersion": "tensor-fusion.ai/v1",
                    "kind": "GPULimits",
                    **parameters,
                },
            }
            devices["config"] = [{"source": "FromClaim", "opaque": opaque}]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]
        allocation = {"devices": devices, "nodeSelector": {"nodeSelectorTerms": terms}}
        status = {"status": {"allocation": allocation}}
        return await self.kube.patch(CLAIMS, name, status, NAMESPACE, subresource="status")

    async def run_pod(self, name: str, *claims: str, **spec: Any) -> Object:
        """A pod on the node that uses the claims in its only container, or as ``spec`` says; its
        claims are reserved for it before the kubelet sees it."""
        uses = [{"name": claim} for claim in claims]
        container = {"name": "app", "image": "app", "resources": {"claims": uses}}
        pod = {
            "metadata": {"name": name},
            "spec": {
                "schedulerName": "none",
                "terminationGracePeriodSeconds": 1,
                "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
                "containers": [container],
                **spec,
            },
        }
        made = await self.kube.create(PODS, pod, NAMESPACE)
        self.made.append(name)
        for claim in claims:
            await self.reserve(claim, made)
        await self.kube.bind(name, NAMESPACE, uid=made["metadata"]["uid"], node=NODE)
        return made

    async def reserve(self, claim: str, pod: Object) -> None:
        """Let a further pod use the claim."""
        held = await self.kube.get(CLAIMS, claim, NAMESPACE)
        metadata = pod["metadata"]
        entry = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        entries = [*(held["status"].get("reservedFor") or ()), entry]
        patch = {"status": {"reservedFor": entries}}
        await self.kube.patch(CLAIMS, claim, patch, NAMESPACE, subresource="status")

    async def environment(self, pod: str, container: str = "app") -> dict[str, str]:
        """What a container sees of its devices."""
        if not self.is_real:
            obj = await self.kube.get(PODS, pod, NAMESPACE)
            text = (obj["metadata"].get("annotations") or {}).get(CDI_ANNOTATION)
            return dict(json.loads(text)["env"][container]) if text else {}
        done = await asyncio.to_thread(
            subprocess.run,
            [
                *(find_kubectl(), "--kubeconfig", self.stack.record.kubeconfig),
                *("exec", pod, "-c", container, "--", "env"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    async def container(self, pod: str) -> dict[str, Any]:
        """Status of the pod's first container."""
        status = (await self.kube.get(PODS, pod, NAMESPACE))["status"]
        return dict((status.get("containerStatuses") or [{}])[0])

    async def has_event(self, pod: str, reason: str, text: str = "") -> bool:
        """Whether the pod has an event of that reason with that text."""
        return any(
            event["involvedObject"].get("name") == pod
            and event["reason"] == reason
            and text in event["message"]
            for event in (await self.kube.list(EVENTS, NAMESPACE)).objects
        )

    async def gone(self, *pods: str, force: bool = False) -> None:
        """Delete pods, and wait until they are gone."""
        for pod in pods:
            grace_s = 0 if force else None
            await self.kube.delete(PODS, pod, NAMESPACE, grace_period_s=grace_s)

        async def are_gone() -> bool:
            return not set(pods) & (await self.pods()).keys()

        await self.until(are_gone, f"{', '.join(pods)} gone")

    async def remove_claim(self, name: str) -> None:
        """Delete a claim, also if pods use it."""
        with contextlib.suppress(NotFoundError):
            await self.kube.delete(CLAIMS, name, NAMESPACE)
            patch = {"metadata": {"finalizers": None}}
            await self.kube.patch(CLAIMS, name, patch, NAMESPACE)

    async def is_clean(self, *kept: str) -> None:
        """Wait until checkpoint and CDI folder have these claims and nothing else."""
        wanted = sorted(
            [(await self.kube.get(CLAIMS, name, NAMESPACE))["metadata"]["uid"] for name in kept]
        )

        async def clean() -> bool:
            return sorted(self.checkpoint()) == wanted == self.cdi_files()

        await self.until(clean, f"prepared are {wanted}, not {sorted(self.checkpoint())}")

    async def reboot(self) -> None:
        """All processes of the node end at once; what is in memory, sockets and CDI files, is
        lost."""
        names = ["machine", "containerd", "kubelet", "kube-proxy", "node-agent"]
        programs = [f"{name}-{NODE}" for name in names] if self.is_real else ["kubelet", AGENT]
        for name in reversed(programs):
            await self.stack.kill(name)
        if not self.is_real:
            shutil.rmtree(self.cdi_dir)
            shutil.rmtree(self.registry_dir)
            self.registry_dir.mkdir()
        for name in programs:
            await self.stack.restart(name)

    async def clean_up(self) -> None:
        """Remove what the test made."""
        pods = [name for name in await self.pods() if name in self.made]
        if pods:
            await self.gone(*pods)
        for name in self.made:
            await self.remove_claim(name)
        self.made.clear()
        await self.is_clean()


def _share_id() -> str:
    text = secrets.token_hex(16)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
