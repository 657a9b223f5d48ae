"""Nobody makes anything appear that another role decides by: what each role can try, tried.

On nats-server with deploy/nats/dray.conf, which installations include.
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.contract.bus.adversary import (
    COMMANDS_CONSUMER,
    FORGED,
    LOG,
    LOG_SUBJECT,
    READABLE,
    ROLES,
    STREAM_NAMES,
    TARGETS,
    Adversary,
    Trick,
    all_verbs,
    tricks,
    tricks_on_replies,
)

from dray.bus.jetstream import JetStreamBus, connect
from dray.bus.memory_store import matches_any
from dray.bus.ports import Request
from dray.bus.readings import ReadingServer
from dray.bus.topology import NODE_AGENT, STREAMS, access_of, reading_subject
from dray.messages.base import Outgoing
from dray.messages.rpc import Inventory, Reading, ReadingReply
from dray.runtime.clock import SystemClock
from dray_claim_controller.identities.server import IdentityServer
from dray_claim_controller.identities.signing import AccountKey
from dray_claim_controller.inventories.decisions import forgery
from dray_sandbox.nats_server import ADMIN, NatsAccess, accounts_file, start_nats
from dray_sandbox.processes import Runner

pytestmark = pytest.mark.asyncio(loop_scope="module")

RIGHTS: Mapping[str, tuple[str, ...]] = {
    # Written by hand. A right that is added to the topology has to be added here, on purpose.
    "webhook": (
        "dray.evt.pod.requested.v1.>",
        "dray.input.webhook.v1.>",
        "dray.rpc.lookup",
        "dray.rpc.derive",
        "dray.rpc.reading.webhook",
        "dray.js.CONSUMER.MSG.NEXT.DRAY_FACTS.*",
        "dray.js.STREAM.INFO.DRAY_FACTS",
    ),
    "allocator": (
        "dray.decision.>",
        "dray.cmd.claim.void.v1.>",
        "dray.lease.>",
        "dray.rpc.reading.allocator",
        "dray.js.CONSUMER.MSG.NEXT.*.*",
        "dray.js.STREAM.INFO.*",
        "dray.js.STREAM.MSG.GET.DRAY_LEASES",
    ),
    "reader": (
        "dray.rpc.dump",
        "dray.rpc.scores",
        "dray.rpc.reading.reader",
        "dray.js.CONSUMER.MSG.NEXT.*.*",
        "dray.js.STREAM.INFO.*",
    ),
    "recorder": (
        "dray.rpc.reading.recorder",
        "dray.js.CONSUMER.MSG.NEXT.*.*",
        "dray.js.STREAM.INFO.*",
    ),
    "n1": (
        "dray.evt.claim.prepared.v1.n1.*",
        "dray.input.node-agent.v1.n1",
        "dray.usage.gpus.v1.n1",
        "dray.rpc.inventory.n1",
        "dray.rpc.reading.node-agent.n1",
        "dray.js.CONSUMER.MSG.NEXT.DRAY_FACTS.*",
    ),
}
DENIED = ("dray.js.CONSUMER.MSG.NEXT.DRAY_COMMANDS.*",)
SUBSCRIPTIONS: Mapping[str, tuple[str, ...]] = {
    "webhook": ("_INBOX.>",),
    "allocator": ("dray.rpc.dump", "dray.rpc.scores", "_INBOX.>"),
    "reader": ("_INBOX.>",),
    "recorder": ("_INBOX.>",),
    "n1": ("_INBOX.n1.>",),
}
OWNER = "claim-controller"
ACCOUNT = "system:serviceaccount:dray-system:dray-node-agent"


class Reviews:
    """A Kubernetes API that confirms a token which names its node."""

    async def create(self, resource: Any, obj: Any, *args: Any, **more: Any) -> Any:
        parts = obj["spec"]["token"].split(".")
        if len(parts) != 3:
            return {**obj, "status": {"error": "no token"}}
        claims = json.loads(_decoded(parts[1]))
        extra = {"authentication.kubernetes.io/node-name": [claims["node"]]}
        status = {
            "authenticated": True,
            "audiences": obj["spec"]["audiences"],
            "user": {"username": ACCOUNT, "extra": extra},
        }
        return {**obj, "status": status}


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def token_of(node: str) -> str:
    claims = json.dumps({"node": node, "exp": time.time() + 3600}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.sig"


class World:
    """A server with the accounts, its owner, and what reached the services behind it."""

    def __init__(self, access: NatsAccess, owner: JetStreamBus, folder: Path) -> None:
        self.access = access
        self.owner = owner
        self.folder = folder
        self.inventories: list[tuple[Request, str | None]] = []
        """Requests that came as inventories, and why each is a forgery."""
        self.lookups: list[Request] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        for spec in (*STREAMS, LOG):
            await self.owner.ensure(spec)
        await self.owner.append(Outgoing(LOG_SUBJECT, b'{"type":"opened"}'), expected_last=0)
        await self.owner.publish(Outgoing("dray.state.tick.v1", FORGED))
        await self.admin(
            f"CONSUMER.CREATE.DRAY_COMMANDS.{COMMANDS_CONSUMER}",
            {
                "stream_name": "DRAY_COMMANDS",
                "config": {
                    "name": COMMANDS_CONSUMER,
                    "durable_name": COMMANDS_CONSUMER,
                    "ack_policy": "explicit",
                },
            },
        )
        for stream in STREAM_NAMES:
            victim = {"name": "victim", "durable_name": "victim", "ack_policy": "none"}
            await self.admin(
                f"CONSUMER.CREATE.{stream}.victim", {"stream_name": stream, "config": victim}
            )
        # A push consumer delivers where somebody listens to exactly its subject, as a log does.
        for subject in TARGETS:
            if not subject.startswith("$SYS"):
                await self.owner._connection.session().subscribe(subject, _pass_over)
        identities = self.identities(3600.0)
        for loop in (identities.run(), ReadingServer(self.owner).run()):
            self.tasks.append(asyncio.create_task(loop))
        for subject, handler in (
            ("dray.rpc.inventory.*", self._inventory),
            ("dray.rpc.lookup", self._lookup),
            ("dray.rpc.derive", self._lookup),
        ):
            serving = self.owner.serve(subject, handler, queue="test")
            self.tasks.append(asyncio.create_task(serving))

    def identities(self, lifetime_s: float) -> IdentityServer:
        return IdentityServer(
            self.owner,
            Reviews(),  # type: ignore[arg-type]
            SystemClock(),
            key=AccountKey(self.access.issuer_seed),
            user=ACCOUNT,
            audience="dray-nats",
            lifetime_s=lifetime_s,
        )

    async def _inventory(self, request: Request) -> bytes:
        try:
            asked = msgspec.json.decode(request.payload, type=Inventory)
            why = forgery(asked, subject_node=request.subject.split(".")[-1], user=request.user)
        except msgspec.MsgspecError as error:
            why = str(error)
        self.inventories.append((request, why))
        return FORGED

    async def _lookup(self, request: Request) -> bytes:
        self.lookups.append(request)
        return FORGED

    async def adversary(self, role: str) -> Adversary:
        made = Adversary(role)
        if role in self.access.passwords:
            await made.connect(self.access.url, user=role, password=self.access.passwords[role])
        else:
            await made.connect(
                self.access.url, token=token_of(role), inbox_prefix=f"_INBOX.{role}".encode()
            )
        return made

    async def bus(self, role: str) -> JetStreamBus:
        return await connect(
            self.access.url,
            name=role,
            role=role,
            user=role,
            password=self.access.passwords[role],
        )

    async def node(self, name: str) -> JetStreamBus:
        file = self.folder / f"{name}.token"
        file.write_text(token_of(name))
        return await connect(
            self.access.url, name=name, role=NODE_AGENT, node=name, token_file=file
        )

    async def admin(self, verb: str, body: Any = None) -> dict[str, Any]:
        session = self.owner._connection.session()
        reply = await session.request(
            f"$JS.API.{verb}", b"" if body is None else json.dumps(body).encode(), timeout_s=10
        )
        return dict(json.loads(reply))

    async def consumers_for(self, role: str) -> dict[str, str]:
        """Consumers that the role may pull from, as if it had asked for them."""
        made = {}
        for stream in READABLE[role]:
            reply = await self.owner.open_reading(Reading(stream=stream))
            made[stream] = reply.consumer
        return made

    async def contents(self) -> dict[str, list[tuple[str, bytes]]]:
        """Subject and payload of all that is stored."""
        found = {}
        for stream in STREAM_NAMES:
            state = await self.owner.state(stream)
            assert state is not None, f"{stream} is gone"
            messages = []
            if state.last_sequence >= state.first_sequence > 0:
                async with asyncio.timeout(60), aclosing(self.owner.read(stream)) as reader:
                    async for one in reader:
                        messages.append((one.subject, one.payload))
                        if not one.pending:
                            break
            found[stream] = messages
        return found

    async def settle(self, *adversaries: Adversary) -> None:
        """Until what was sent was read, and what the server had to send for it was stored."""
        for one in adversaries:
            await one.settle()
        # Answers of the API and pulled messages leave from queues of their own, in order.
        for stream in STREAM_NAMES:
            await self.admin(f"STREAM.INFO.{stream}")
        for number in range(3):
            await self.owner.publish(Outgoing("dray.state.tick.v1", b"%d" % number))


async def _pass_over(message: Any) -> None: ...


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("accounts")
    runner = Runner(folder / "logs")
    access = await start_nats(runner, folder, sync_interval="2m")
    owner = await connect(access.url, name="owner", user=OWNER, password=access.passwords[OWNER])
    # The administrator makes what no service may.
    admin = await connect(access.url, name="admin", user=ADMIN, password=access.passwords[ADMIN])
    made = World(access, admin, folder)
    await made.begin()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    await owner.close()
    await admin.close()
    await runner.stop_all()


def may(role: str, subject: str) -> bool:
    return matches_any(subject, RIGHTS[role]) and not (
        matches_any(subject, DENIED) and role != "webhook" and role != "n1"
    )


async def test_the_rights_of_the_roles_are_those_that_the_table_says() -> None:
    """Of what the file gives to nats-server, users' permissions and accounts' imports alike."""
    text = accounts_file().read_text()
    for role in ROLES:
        if role == "n1":
            continue
        block = re.search(rf"user: {role}, .*?\n      \}}", text, re.DOTALL)
        assert block is not None
        allowed, denied = _listed(block[0], "publish")
        assert tuple(allowed) == RIGHTS[role]
        assert tuple(denied) == (DENIED if "dray.js.CONSUMER.MSG.NEXT.*.*" in allowed else ())
        assert tuple(_listed(block[0], "subscribe")[0]) == SUBSCRIPTIONS[role]
    for role in ROLES:
        account = "NODE_AGENT" if role == "n1" else role.upper()
        block = re.search(rf"^  {account} \{{.*?^  \}}", text, re.DOTALL | re.MULTILINE)
        assert block is not None
        expected = [re.sub(r"\bn1\b", "*", right) for right in RIGHTS[role]]
        assert _imported(block[0]) == expected
        assert "jetstream" not in block[0]


def _listed(block: str, what: str) -> tuple[list[str], list[str]]:
    part = block[block.index(f"{what}: {{ allow: [") :]
    part = part[: part.index("] }")]
    allowed, _, denied = part.partition("deny: [")
    return re.findall(r'"([^"]+)"', allowed), re.findall(r'"([^"]+)"', denied)


def _imported(block: str) -> list[str]:
    found = []
    for line in block[block.index("imports: [") :].splitlines()[1:]:
        if match := re.search(r'subject: "([^"]+)" \}(?:, to: "([^"]+)")?', line):
            found.append(match[2] or match[1])
    return found


async def test_a_node_gets_the_rights_that_the_table_says() -> None:
    rights = access_of(NODE_AGENT).for_node("n1")
    assert (*rights.publish, "dray.js.CONSUMER.MSG.NEXT.DRAY_FACTS.*") == RIGHTS["n1"]


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_publishes_what_the_table_says_and_nothing_else(
    world: World, role: str
) -> None:
    """Each subject and each verb of JetStream, by itself: the server names what it refuses."""
    adversary = await world.adversary(role)
    subjects = [*TARGETS, *dict.fromkeys(each.subject for each in all_verbs("_INBOX.x"))]
    for subject in subjects:
        # With a payload that is refused everywhere, in case it is let through.
        await adversary.play(Trick(subject, b"nonsense"))
    await world.settle(adversary)
    allowed = [one for one in subjects if not adversary.was_refused("publish", one)]
    assert allowed == [one for one in subjects if may(role, one)]
    await adversary.close()


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_hears_what_the_table_says_and_nothing_else(world: World, role: str) -> None:
    adversary = await world.adversary(role)
    wanted = (">", "dray.>", "_INBOX.>", "_INBOX.n2.>", "_R_.>", "$JS.>", "$SYS.>", *TARGETS)
    for subject in wanted:
        await adversary.client.subscribe(subject)
    await world.settle(adversary)
    heard = [one for one in wanted if not adversary.was_refused("subscription", one)]
    # The inbox of a node is within that of all, which it may not hear.
    own = [one for one in wanted if matches_any(one.replace(">", "x"), SUBSCRIPTIONS[role])]
    assert heard == own
    await adversary.close()


@pytest.mark.parametrize("role", ROLES)
async def test_no_trick_of_a_role_puts_anything_where_another_writes(
    world: World, role: str
) -> None:
    """Replies, deliveries, traces and schedules named after every foreign subject; what then is in
    the streams is what the role may write itself."""
    foreign = [one for one, owners in TARGETS.items() if role not in owners]
    before = await world.contents()
    world.inventories.clear()
    world.lookups.clear()
    adversary = await world.adversary(role)
    own = await world.consumers_for(role)
    for target in foreign:
        for each in tricks(target, own):
            await adversary.play(each)
    for each in tricks_on_replies(own):
        await adversary.play(each)
    await world.settle(adversary)
    after = await world.contents()
    for stream, messages in after.items():
        added = messages[len(before[stream]) :] if stream != "DRAY_FACTS" else messages
        if stream == "DRAY_USAGE":
            added = [one for one in messages if one not in before[stream]]
        assert messages[: len(before[stream])] == before[stream] or stream in (
            "DRAY_FACTS",
            "DRAY_LEASES",
            "DRAY_USAGE",
        )
        for subject, payload in added:
            is_ours = subject == "dray.state.tick.v1" and len(payload) == 1
            assert is_ours or may(role, subject), f"{subject} of {stream}: {payload[:80]!r}"
    assert [why for request, why in world.inventories if why is None] == []
    assert [
        request.subject for request, _ in world.inventories if not may(role, request.subject)
    ] == []
    assert role == "webhook" or not world.lookups
    await adversary.close()


@pytest.mark.parametrize("role", ROLES)
async def test_no_trick_takes_a_command_or_changes_what_was_made(world: World, role: str) -> None:
    """The consumer of commands delivers nothing to others, and streams and consumers stay."""
    await world.owner.publish(Outgoing("dray.cmd.claim.void.v1.p.u", b"{}"))
    adversary = await world.adversary(role)
    own = await world.consumers_for(role)
    for each in (*all_verbs(adversary.inbox + ".x"), *tricks_on_replies(own)):
        await adversary.play(each)
    await world.settle(adversary)
    commands = await world.admin(f"CONSUMER.INFO.DRAY_COMMANDS.{COMMANDS_CONSUMER}")
    assert commands["delivered"]["consumer_seq"] == 0
    assert "paused" not in commands or not commands["paused"]
    for stream in STREAM_NAMES:
        info = await world.admin(f"STREAM.INFO.{stream}")
        assert "republish" not in info["config"]
        assert await world.owner.state(stream) is not None
        names = (await world.admin(f"CONSUMER.NAMES.{stream}"))["consumers"] or []
        assert "victim" in names
        assert "evil" not in names
    assert (await world.admin("STREAM.INFO.EVIL")).get("error")
    await adversary.close()


async def test_the_same_tricks_land_where_roles_share_an_account(tmp_path: Path) -> None:
    """They are not empty threats: with one account, and rights to JetStream's API as every role had
    them, a node's agent writes records and facts."""
    runner = Runner(tmp_path / "logs")
    access = await start_nats(runner, tmp_path, sync_interval="2m")
    shared = """
accounts { ALL { jetstream: enabled, users: [
  { user: admin, password: $DRAY_NATS_ADMIN_PASSWORD }
  { user: reader, password: $DRAY_NATS_READER_PASSWORD, permissions {
      publish: { allow: ["dray.evt.claim.prepared.v1.n1.*", "$JS.API.>"] }
      subscribe: { allow: ["_INBOX.>"] } } }
] } }
"""
    (tmp_path / "dray.conf").write_text(shared)
    await runner.restart("nats-server")
    admin = await connect(access.url, name="a", user=ADMIN, password=access.passwords[ADMIN])
    world = World(access, admin, tmp_path)
    await world.begin()
    adversary = await world.adversary("reader")
    for each in tricks(LOG_SUBJECT, {}):
        if "DELETE" not in each.subject and "PURGE" not in each.subject:
            await adversary.play(each)
    await world.settle(adversary)
    state = await admin.state(LOG.name)
    assert state is not None
    assert state.last_sequence > 1
    for task in world.tasks:
        task.cancel()
    await adversary.close()
    await admin.close()
    await runner.stop_all()


# --- nodes ------------------------------------------------------------------------------------


async def test_a_node_reads_and_reports_under_its_own_name(world: World) -> None:
    bus = await world.node("n1")
    facts = {
        "dray.state.node.v1.n1": b"own",
        "dray.state.node.v1.n2": b"another's",
        "dray.state.cluster.v1": b"all",
    }
    for subject, payload in facts.items():
        await world.owner.publish(Outgoing(subject, payload))
    rights = access_of(NODE_AGENT).for_node("n1")
    got = []
    async with (
        asyncio.timeout(60),
        aclosing(bus.read("DRAY_FACTS", subjects=rights.reads[0].subjects)) as reader,
    ):
        async for one in reader:
            got.append(one.payload)
            if not one.pending:
                break
    assert got == [b"own", b"all"]
    world.inventories.clear()
    report = msgspec.json.encode(Inventory(node="n1", driver="d", generation=1))
    assert await bus.request("dray.rpc.inventory.n1", report, timeout_s=10) == FORGED
    ((request, why),) = world.inventories
    assert (request.user, why) == ("n1", None)
    await bus.close()


async def test_the_responder_knows_the_user_whatever_the_message_claims(world: World) -> None:
    adversary = await world.adversary("n1")
    world.inventories.clear()
    forged = {"Nats-Request-Info": '{"acc":"NODE_AGENT","user":"n2"}'}
    report = msgspec.json.encode(Inventory(node="n2", driver="d", generation=1))
    await adversary.client.request("dray.rpc.inventory.n1", report, timeout=10, headers=forged)
    ((request, why),) = world.inventories
    assert request.user == "n1"
    assert why is not None
    await adversary.close()


@pytest.mark.parametrize(
    "reading",
    [
        Reading(stream="DRAY_FACTS", subjects=("dray.state.node.v1.n2",)),
        Reading(stream="DRAY_FACTS"),
        Reading(stream=LOG.name),
        Reading(stream="DRAY_INPUTS"),
    ],
)
async def test_a_node_gets_no_consumer_for_more(world: World, reading: Reading) -> None:
    bus = await world.node("n1")
    subject = reading_subject(NODE_AGENT, "n1")
    answer = await bus.request(subject, msgspec.json.encode(reading), timeout_s=10)
    reply = msgspec.json.decode(answer, type=ReadingReply)
    assert "may not read" in reply.error
    assert not reply.consumer
    await bus.close()


async def test_a_user_that_ended_is_confirmed_again_and_goes_on_reading(
    world: World, tmp_path: Path
) -> None:
    """The server closes the connection when the user's hour is over."""
    for task in world.tasks[:1]:
        task.cancel()
    short = world.identities(1.0)
    confirmed: list[Request] = []

    async def answer(request: Request) -> bytes | None:
        confirmed.append(request)
        return await short.answer(request)

    serving = asyncio.create_task(world.owner.serve("$SYS.REQ.USER.AUTH", answer, queue="short"))
    await world.admin("INFO")  # Answered after the server has taken the subscription.
    bus = await world.node("n3")
    assert bus.connected
    subjects = ("dray.state.node.v1.n3",)
    async with asyncio.timeout(60), aclosing(bus.read("DRAY_FACTS", subjects=subjects)) as reader:
        for number in range(3):
            before = len(confirmed)
            await world.owner.publish(Outgoing(subjects[0], b"%d" % number))
            assert (await anext(reader)).payload == b"%d" % number
            while len(confirmed) == before:  # noqa: ASYNC110 - the server ends it by its clock
                await asyncio.sleep(0.02)
    serving.cancel()
    world.tasks[0] = asyncio.create_task(world.identities(3600.0).run())
    await bus.close()


async def test_an_unknown_token_gets_no_connection(world: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("nonsense")
    bus = await connect(
        world.access.url, name="x", role=NODE_AGENT, node="n1", token_file=file, wait_s=0.0
    )
    async with asyncio.timeout(60):
        while "confirmed the token" not in (bus.problem or ""):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not bus.connected
    await bus.close()
