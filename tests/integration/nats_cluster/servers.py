"""Several nats-servers that keep streams together, with the accounts that installations have."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray_sandbox.nats_server import NatsAccess, Secrets, nats_program, wipe_store
from dray_sandbox.paths import free_port
from dray_sandbox.processes import ProcessSpec, ProgramFailedError, Runner, gather_or_cancel

CLUSTER = "dray"
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class NatsCluster:
    """The servers by name, and how to reach them."""

    access: NatsAccess
    """With all addresses."""
    names: tuple[str, ...]
    directory: Path

    async def wipe(self, name: str) -> None:
        """Delete everything that a (stopped) server has stored."""
        await asyncio.to_thread(wipe_store, self.directory / name)


async def start_nats_cluster(
    runner: Runner, directory: Path, *, servers: int = 3, sync_interval: str = "2m"
) -> NatsCluster:
    """Start them; each has its files in a folder of its own. Raises ProgramFailedError."""
    held = Secrets.new()
    names = tuple(f"nats-{number}" for number in range(1, servers + 1))
    for attempt in range(1, _ATTEMPTS + 1):
        ports = [free_port() for _ in names]
        programs = _programs(directory, names, ports, held, sync_interval)
        try:
            await gather_or_cancel(*map(runner.start, programs))
        except ProgramFailedError as error:
            for name in runner.pids():
                await runner.stop(name)
            if error.lost_a_port and attempt < _ATTEMPTS:
                continue
            raise
        urls = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
        return NatsCluster(NatsAccess(urls, held.passwords, held.issuer_seed), names, directory)
    raise PermanentError("the last attempt returns or raises")


def _programs(
    directory: Path,
    names: Sequence[str],
    ports: Sequence[int],
    held: Secrets,
    sync_interval: str,
) -> list[ProcessSpec]:
    routes = {name: free_port() for name in names}
    addresses = [f"nats-route://127.0.0.1:{port}" for port in routes.values()]
    return [
        nats_program(
            name,
            directory / name,
            held,
            port,
            sync_interval=sync_interval,
            cluster=(
                f'cluster {{ name: {CLUSTER}, listen: "127.0.0.1:{routes[name]}", '
                f"routes: {json.dumps(addresses)} }}"
            ),
        )
        for name, port in zip(names, ports, strict=True)
    ]
