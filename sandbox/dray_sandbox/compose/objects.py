"""dray's objects in the API server of ``deploy/compose``."""

import asyncio
from pathlib import Path
from typing import Any, Final

from dray.api.names import (
    API_VERSION,
    BASE_TEMPLATE,
    DRAY_NAMESPACE,
    GPU_LABEL,
    GPU_PRESENT,
)
from dray.kube.api import connect
from dray.runtime.backoff import Backoff
from dray_sandbox.access import ADMIN, Endpoint
from dray_sandbox.chart import admission_policies, chart_directory, classes, cluster_roles
from dray_sandbox.kubelet.tokens import ACCOUNT
from dray_sandbox.layout import GPU_RESOURCES, SCHEDULER_NAMES
from dray_sandbox.objects import Installer, documents
from dray_sandbox.probes import answers
from dray_webhook.decisions.registration import webhook_configurations

_POLICY: Final = "default-scheduling-config"


def _defaults() -> list[dict[str, Any]]:
    """The policy and the pool of an installation. The pool has every node with GPUs."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "SchedulingConfigTemplate",
            "metadata": {"name": _POLICY},
            "spec": {"dra": {"enable": True, "resourceClaimTemplateName": BASE_TEMPLATE}},
        },
        {
            "apiVersion": API_VERSION,
            "kind": "GPUPool",
            "metadata": {"name": "default"},
            "spec": {
                "default": True,
                "schedulingConfigTemplate": _POLICY,
                "nodeSelector": {GPU_LABEL: GPU_PRESENT},
            },
        },
    ]


async def install(reached: Endpoint, kubeconfig: Path, webhook: str, certificates: Path) -> None:
    """Create dray's objects, wait for the webhook's certificates, and register the webhook.

    ``kubeconfig`` is the administrator's."""
    files = chart_directory() / "files"
    ready = answers(
        f"{reached.url}/readyz", authority=reached.authority, token=reached.tokens[ADMIN]
    )
    backoff = Backoff(0.2, 1.0)
    while not await ready():
        await backoff.pause()
    crds = documents(chart_directory() / "crds")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRAY_NAMESPACE}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _own(ACCOUNT)}
    async with Installer(reached) as installer:
        await installer.apply([namespace, account, *crds])
        if await _has_roles(kubeconfig):
            await installer.apply(cluster_roles())
        await installer.wait_until_served(crds)
        await installer.apply([*classes(), *admission_policies()])
        await installer.apply([*documents(files / "basetemplate.yaml"), *_defaults()])
        authority = certificates / "ca.crt"
        while not await asyncio.to_thread(authority.exists):
            await backoff.pause()
        bundle = await asyncio.to_thread(authority.read_bytes)
        # The mutating one last: once the server calls it, it also calls the validating one.
        configurations = webhook_configurations(
            f"https://{webhook}",
            bundle,
            scheduler_names=SCHEDULER_NAMES,
            gpu_resources=GPU_RESOURCES,
        )
        await installer.apply(reversed(configurations))


async def _has_roles(kubeconfig: Path) -> bool:
    """Whether the server has roles. The sandbox has none: it gives every user all rights."""
    kube = await connect(str(kubeconfig), user_agent="dray-compose")
    try:
        return bool(await kube.served_versions("rbac.authorization.k8s.io"))
    finally:
        await kube.close()


def _own(name: str) -> dict[str, str]:
    return {"name": name, "namespace": DRAY_NAMESPACE}
