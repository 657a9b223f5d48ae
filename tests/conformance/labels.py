"""Whose GPUs a node-agent's metrics show, and whose they are by the kubelet."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from dray_node_agent.kubelet.client import call
from dray_node_agent.kubelet.generated import pod_resources_pb2

Holders = dict[str, set[tuple[str, str]]]
"""Pod and container of who has a device, by the device's name."""


async def holders_of(readiness_url: str) -> Holders:
    """By the metrics of the agent with this page; devices without holders are left out."""
    url = readiness_url.rpartition("/")[0] + "/metrics"
    page = await asyncio.to_thread(lambda: urlopen(url, timeout=5).read().decode())
    found: Holders = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "DCGM_FI_DEV_FB_USED" and sample.labels["pod"]:
                holder = (sample.labels["pod"], sample.labels["container"])
                found.setdefault(sample.labels["UUID"].lower(), set()).add(holder)
    return found


async def listed_by(socket: Path) -> Holders:
    """By the kubelet: devices of claims, and ids of device plugins."""
    messages: Any = pod_resources_pb2
    answer = await call(
        socket,
        "/v1.PodResourcesLister/List",
        messages.ListPodResourcesRequest(),
        messages.ListPodResourcesResponse,
    )
    found: Holders = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            claims = container.dynamic_resources
            names = [one.device_name for claim in claims for one in claim.claim_resources]
            names += [one for given in container.devices for one in given.device_ids]
            for name in names:
                found.setdefault(name, set()).add((pod.name, container.name))
    return found
