"""What the webhook's process talks to: facts, look-ups, and API servers that call it."""

import contextlib
import ssl
import sys
from pathlib import Path

import aiohttp
import msgspec

from dray.api.names import BASE_TEMPLATE, DEVICE_CLASS, TEMPLATE_LABEL
from dray.api.pods import Policy, Pool
from dray.bus.ports import Request
from dray.bus.topology import STREAMS
from dray.messages.base import encode
from dray.messages.facts import (
    ClusterObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray.messages.rpc import Lookup, LookupReply
from dray_sandbox.apiserver.serve import serve
from dray_sandbox.probes import answers
from dray_sandbox.processes import ProcessSpec

P = "tensor-fusion.ai/"
EXACTLY = {"deviceClassName": DEVICE_CLASS, "count": 1}
FACTS = (
    PoolObserved(revision=1, pool=Pool(name="shared", uid="1", template="on")),
    PolicyObserved(revision=2, policy=Policy(name="on", uid="2", dra_enabled=True)),
    TemplateObserved(
        revision=3,
        namespace="default",
        name=BASE_TEMPLATE,
        labels={TEMPLATE_LABEL: "true"},
        spec={"spec": {"devices": {"requests": [{"name": "gpu-request", "exactly": EXACTLY}]}}},
    ),
    ClusterObserved(revision=4, version="v1.36.3"),
    Synced(revision=5, instance="test"),
)
LATE = LookupReply(pool=Pool(name="late", uid="9", template="on"))


async def publish_facts(bus) -> None:
    for spec in STREAMS:
        await bus.ensure(spec)
    for fact in FACTS:
        await bus.publish(encode(fact, source="/claim-controller/test"))


async def answer_lookup(request: Request) -> bytes:
    lookup = msgspec.json.decode(request.payload, type=Lookup)
    return msgspec.json.encode(LATE if lookup.name == "late" else LookupReply())


def program(nats, health: int, port: int, certificates: Path) -> ProcessSpec:
    return ProcessSpec(
        name="webhook",
        argv=(sys.executable, "-m", "dray_webhook"),
        environment={
            **nats.environment("webhook"),
            "DRAY_HEALTH__PORT": str(health),
            "DRAY_WEBHOOK__PORT": str(port),
            "DRAY_WEBHOOK__CERTIFICATE_DIR": str(certificates),
            "DRAY_WEBHOOK__LOOKUP_TIMEOUT": "2s",
        },
        ready=answers(f"http://127.0.0.1:{health}/healthz"),
        order=20,
    )


@contextlib.asynccontextmanager
async def sandbox(folder, runner):
    async with serve(folder) as api:
        yield api.url, api.token, api.ca_file


@contextlib.asynccontextmanager
async def real(folder, runner):
    from dray_sandbox.access import ADMIN, make_credentials
    from dray_sandbox.controlplane.build import build
    from dray_sandbox.controlplane.launch import start_control_plane

    folder.mkdir()
    binary = await build(print)
    api = await start_control_plane(
        runner, binary, folder, make_credentials(folder), context="webhook"
    )
    yield api.url, api.tokens[ADMIN], api.authority


def admin(nats) -> str:
    return nats.passwords["admin"]


def client_of(url, token, authority) -> aiohttp.ClientSession:
    trusting = ssl.create_default_context(cafile=str(authority))
    return aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(ssl=trusting),
    )
