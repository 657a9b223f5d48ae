"""Claims that people write themselves, past dray's annotations: none of them gets a dray card."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from tests.conformance.path_b.cluster import ON_THE_REAL_ONE, Cluster

from dray.api import names
from dray.kube.ports import (
    CLAIMS,
    CLASSES,
    TEMPLATES,
    AlreadyExistsError,
    Object,
    RefusedError,
    Resource,
)
from dray_sandbox.controlplane.build import find_kubectl
from tools.faults.plan import DEDICATED, SHARED

pytestmark = ON_THE_REAL_ONE
GREEDY = "greedy.dray.dev"
"""A class of somebody else, whose selector takes any driver's devices."""
MODEL = f'device.attributes["{names.DRIVER}"].model == "A100"'
ANY = f'"{names.DRIVER}" in device.attributes && {MODEL}'
TOLERATES_ALL = [{"operator": "Exists"}]


def _claim(device_class: str, tolerations: object = None) -> Object:
    exactly: Object = {"deviceClassName": device_class}
    if tolerations:
        exactly["tolerations"] = tolerations
    return {
        "metadata": {"name": "by-hand"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


@pytest.mark.parametrize("device_class_name", [names.DEVICE_CLASS, GREEDY])
async def test_kube_scheduler_gives_them_no_card_of_dray(
    cluster: Cluster, device_class_name: str
) -> None:
    await _make_class(cluster)
    if not await cluster.keeps_taints():
        with pytest.raises(RefusedError) as refusal:
            await cluster.kube.create(CLAIMS, _claim(device_class_name), "default")
        assert "drops device taints (DRADeviceTaints is off)" in str(refusal.value)
        return
    await cluster.kube.create(CLAIMS, _claim(device_class_name), "default")
    try:
        uses = [{"name": "gpu", "resourceClaimName": "by-hand"}]
        await cluster.submit("robber", resourceClaims=uses)

        refused = await cluster.until("robber", _refused, "kube-scheduler refuses it")

        assert "cannot allocate all claims" in _refused(refused)
        claim = await cluster.kube.get(CLAIMS, "by-hand", "default")
        assert "allocation" not in (claim.get("status") or {})
        described = await _kubectl(cluster, "describe", "pod", "robber")
        assert "cannot allocate all claims" in described
        explained = await _dray(cluster, "explain", "pod/robber")
        assert "device taint tensor-fusion.ai/owner=dray:NoSchedule" in explained
        assert "kube-scheduler says: 0/5 nodes are available" in explained
        # Cards are there, and dray gives them.
        await cluster.submit("asks", SHARED)
        await cluster.submit("asks-own", DEDICATED)
        await cluster.running("asks", "asks-own")
    finally:
        await cluster.kube.delete(CLAIMS, "by-hand", "default")


@pytest.mark.usefixtures("gated")
@pytest.mark.parametrize("device_class_name", [names.DEVICE_CLASS, GREEDY])
@pytest.mark.parametrize("kind", [CLAIMS, TEMPLATES], ids=lambda kind: kind.plural)
async def test_claims_that_tolerate_the_taint_are_refused_at_admission(
    cluster: Cluster, kind: Resource, device_class_name: str
) -> None:
    await _make_class(cluster)
    obj = _claim(device_class_name, TOLERATES_ALL)
    if kind == TEMPLATES:
        obj = {"metadata": obj["metadata"], "spec": {"spec": obj["spec"]}}

    with pytest.raises(RefusedError) as refusal:
        await cluster.kube.create(kind, obj, "default")

    assert f"covers the device taint {names.OWNER_TAINT}={names.OWNER_DRAY}" in str(refusal.value)
    assert "remove the toleration" in str(refusal.value)


async def test_an_extended_resource_of_our_class_gets_no_card_either(cluster: Cluster) -> None:
    """kube-scheduler makes a claim for it by itself, where the server has that feature."""
    resource = f"deviceclass.resource.kubernetes.io/{names.DEVICE_CLASS}"
    amounts = {"cpu": "100m", resource: "1"}
    container = {"resources": {"requests": amounts, "limits": amounts}}

    await cluster.submit("implicit", container=container)

    refused = await cluster.until("implicit", _refused, "kube-scheduler refuses it")
    assert "0/5 nodes are available" in _refused(refused)


async def _make_class(cluster: Cluster) -> None:
    with suppress(AlreadyExistsError):
        selectors = [{"cel": {"expression": ANY}}]
        await cluster.kube.create(
            CLASSES, {"metadata": {"name": GREEDY}, "spec": {"selectors": selectors}}
        )


def _refused(pod: Object) -> str:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition.get("message"))
    return ""


async def _kubectl(cluster: Cluster, *arguments: str) -> str:
    return await _run(cluster, find_kubectl() or "kubectl", *arguments)


async def _dray(cluster: Cluster, *arguments: str) -> str:
    return await _run(cluster, sys.executable, "-m", "dray_cli", *arguments)


async def _run(cluster: Cluster, *arguments: str) -> str:
    environment = {**os.environ, "KUBECONFIG": cluster.stack.record.kubeconfig}
    done = await asyncio.to_thread(
        subprocess.run,
        arguments,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return str(done.stdout)
