"""How pods use odd claims, and what is reported about odd objects."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conformance.limits.objects import NAME, NAMESPACE
from tests.conformance.path_b.cluster import PATIENCE_S, Cluster

from dray.kube.ports import CLAIMS, EVENTS, NotFoundError, Object, Resource
from tools.faults.plan import DEDICATED

THE_CLAIM = {"resourceClaimName": NAME}


@asynccontextmanager
async def made(cluster: Cluster, resource: Resource, obj: Object) -> AsyncIterator[Object]:
    """The object, for the length of a block; pods that use it end with the block."""
    namespace = NAMESPACE if resource.namespaced else ""
    name = obj["metadata"]["name"]
    created = await cluster.kube.create(resource, obj, namespace)
    try:
        yield created
    finally:
        await cluster.clean_up()
        await cluster.kube.delete(resource, name, namespace)
        await _gone(cluster, resource, name, namespace)


async def submit_with(
    cluster: Cluster, pod: str, source: Mapping[str, str] = THE_CLAIM, **more: Any
) -> None:
    """A pod of the pool that uses the odd claim as well as dray's own; ``source`` says which."""
    uses = [{"name": NAME, **source}]
    container = {"resources": {"requests": {"cpu": "100m"}, "claims": [{"name": NAME}]}}
    await cluster.submit(pod, DEDICATED, container=container, resourceClaims=uses, **more)


async def dray(cluster: Cluster, *words: str) -> Any:
    """What the command line answers."""
    access = ("--kubeconfig", cluster.stack.record.kubeconfig, "--output", "json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dray_cli", *words, *access, stdout=PIPE, stderr=PIPE
    )
    answer, errors = await process.communicate()
    assert answer, errors.decode()
    return json.loads(answer)


async def allocated(cluster: Cluster, pod: str, claim: str = NAME) -> Object:
    """The claim as it was allocated, once the pod that uses it runs."""
    await cluster.running(pod)
    found = await cluster.kube.get(CLAIMS, claim, NAMESPACE)
    return dict(found["status"]["allocation"])


async def _gone(cluster: Cluster, resource: Resource, name: str, namespace: str) -> None:
    """A finalizer keeps a claim until Kubernetes has seen that no pod uses it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            await cluster.kube.get(resource, name, namespace)
        except NotFoundError:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{resource.plural} {name}: not gone within {PATIENCE_S:g} s")


async def reported(cluster: Cluster, about: Object, text: str) -> str:
    """The message of an event about the object that has the text."""
    uid = about["metadata"]["uid"]
    deadline_s = time.monotonic() + PATIENCE_S
    seen: set[str] = set()
    while time.monotonic() < deadline_s:
        listed = await cluster.kube.list(EVENTS, NAMESPACE)
        seen = {str(e["message"]) for e in listed.objects if e["involvedObject"].get("uid") == uid}
        for message in seen:
            if text in message:
                return message
        await asyncio.sleep(0.1)
    pytest.fail(
        f"{about['metadata']['name']}: not within {PATIENCE_S:g} s an event with {text!r}; "
        f"there are {seen}"
    )
