"""nats-server with the accounts that installations have, as a local stack starts it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from dray.bus.payload import RECOMMENDED_BYTES
from dray.bus.topology import STREAMS
from dray_sandbox.nats_server import (
    USERS,
    NatsAccess,
    Secrets,
    accounts_file,
    configuration,
    start_nats,
)
from dray_sandbox.processes import Runner


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsAccess]:
    runner = Runner(tmp_path / "logs")
    yield await start_nats(runner, tmp_path)
    await runner.stop_all()


class Session:
    """A connection as one role, with the permission errors that the server sent."""

    def __init__(self) -> None:
        self.refused: asyncio.Queue[str] = asyncio.Queue()
        self.client: Client

    async def open(self, access: NatsAccess, role: str) -> Client:
        async def note(error: Exception) -> None:
            self.refused.put_nowait(str(error).lower())

        self.client = await nats.connect(
            access.url, user=role, password=access.passwords[role], error_cb=note
        )
        return self.client


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    session = Session()
    yield session
    await session.client.close()


async def stored(server: NatsAccess, stream: str) -> int:
    admin = await nats.connect(server.url, user="admin", password=server.passwords["admin"])
    try:
        answer = await admin.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=30)
    finally:
        await admin.close()
    return int(json.loads(answer.data)["state"]["messages"])


async def make_streams(server: NatsAccess) -> None:
    admin = await nats.connect(server.url, user="admin", password=server.passwords["admin"])
    try:
        for spec in STREAMS:
            request = json.dumps({"name": spec.name, "subjects": list(spec.subjects)}).encode()
            await admin.request(f"$JS.API.STREAM.CREATE.{spec.name}", request, timeout=30)
    finally:
        await admin.close()


async def test_a_wrong_password_is_refused(server: NatsAccess) -> None:
    """By hand: the client library leaves its socket open when it is refused."""
    host, port = server.url.removeprefix("nats://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        assert (await reader.readline()).startswith(b"INFO ")
        writer.write(b'CONNECT {"user": "allocator", "pass": "guess", "verbose": false}\r\n')
        assert b"Authorization Violation" in await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_role_publishes_its_own_subjects(server: NatsAccess, session: Session) -> None:
    await make_streams(server)
    client = await session.open(server, "webhook")
    answer = await client.request("dray.evt.pod.requested.v1.p.r", b"{}", timeout=30)
    assert json.loads(answer.data)["stream"] == "DRAY_EVENTS"


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("webhook", "dray.state.node.v1.node-0"),
        ("webhook", "dray.decision.team-a.1"),
        ("allocator", "dray.state.claim.v1.default.uid"),
        ("recorder", "dray.input.webhook.v1.w"),
        ("reader", "dray.cmd.claim.void.v1.team-a.uid"),
        ("allocator", "$JS.API.STREAM.DELETE.DRAY_FACTS"),
        ("webhook", "$JS.API.STREAM.PURGE.DRAY_FACTS"),
    ],
)
async def test_a_role_is_refused_a_foreign_subject(
    server: NatsAccess, session: Session, role: str, subject: str
) -> None:
    await make_streams(server)
    client = await session.open(server, role)
    await client.publish(subject, b"{}")
    refusal = await asyncio.wait_for(session.refused.get(), 5)
    assert "permissions violation" in refusal
    assert subject.lower() in refusal
    assert await stored(server, "DRAY_FACTS") == 0


async def test_a_role_is_refused_a_foreign_subscription(
    server: NatsAccess, session: Session
) -> None:
    client = await session.open(server, "webhook")
    await client.subscribe("dray.decision.>")
    refusal = await asyncio.wait_for(session.refused.get(), 5)
    assert "permissions violation" in refusal
    assert "dray.decision.>" in refusal


async def test_the_claim_controller_makes_streams(server: NatsAccess, session: Session) -> None:
    client = await session.open(server, "claim-controller")
    request = json.dumps({"name": "DRAY_FACTS", "subjects": ["dray.state.>"]}).encode()
    answer = await client.request("$JS.API.STREAM.CREATE.DRAY_FACTS", request, timeout=30)
    assert "error" not in json.loads(answer.data)


async def test_what_was_acknowledged_survives_kill_and_restart_on_the_same_port(
    tmp_path: Path,
) -> None:
    runner = Runner(tmp_path / "logs")
    try:
        server = await start_nats(runner, tmp_path)
        await make_streams(server)
        admin = await nats.connect(server.url, user="admin", password=server.passwords["admin"])
        await admin.request("dray.state.node.v1.node-0", b"{}", timeout=30)
        await admin.close()
        await runner.kill("nats-server")
        await runner.restart("nats-server")
        assert await stored(server, "DRAY_FACTS") == 1
    finally:
        await runner.stop_all()


def test_acks_are_after_fsync_and_messages_as_long_as_is_recommended() -> None:
    content = configuration(4222, Path("store"), sync_interval="always").decode()
    assert "sync_interval: always" in content
    assert f"max_payload: {RECOMMENDED_BYTES}" in content
    assert 'include "dray.conf"' in content


def test_every_variable_of_the_accounts_gets_a_value_that_nats_reads_as_text() -> None:
    """One that begins with a digit would be a number."""
    given = Secrets.new().environment()
    wanted = set(re.findall(r"\$(DRAY_\w+)", accounts_file().read_text()))
    assert given.keys() == wanted
    assert all(value[0].isalpha() and value.isalnum() for value in given.values())


def test_a_service_gets_its_own_password_and_a_node_agent_none() -> None:
    held = Secrets.new()
    access = NatsAccess("nats://x", held.passwords, held.issuer_seed)
    assert access.environment("allocator")["DRAY_NATS__PASSWORD"] == held.passwords["allocator"]
    assert access.environment("node-agent") == {"DRAY_NATS__URL": "nats://x"}
    seeds = [role for role in USERS if "DRAY_IDENTITIES__ISSUER_SEED" in access.environment(role)]
    assert seeds == ["claim-controller"]
