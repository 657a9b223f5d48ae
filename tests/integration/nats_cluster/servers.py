"""Several nats-servers that keep streams together, with the accounts that installations have."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray.bus.jetstream import JetStreamBus, connect
from dray.bus.ports import BusUnavailableError
from dray.bus.topology import CLAIM_CONTROLLER, STREAMS, log_spec
from dray_sandbox.nats_server import ADMIN, NatsAccess, Secrets, nats_program, wipe_store
from dray_sandbox.processes import ProcessSpec, ProgramFailedError, Runner, gather_or_cancel
from dray_sandbox.tcp_ports import free_port

CLUSTER = "dray"
_ATTEMPTS = 3
BOUND_S = 90.0
"""A cluster without a leader elects one in seconds; a reader notices a server that went after a
dozen, and the machine may be busy."""


@dataclass(frozen=True, slots=True)
class NatsCluster:
    """The servers by name, and how to reach them."""

    access: NatsAccess
    """With all addresses."""
    names: tuple[str, ...]
    monitors: dict[str, str]
    """Where each answers to probes."""
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
        monitors = {name: f"127.0.0.1:{free_port()}" for name in names}
        programs = _programs(directory, monitors, ports, held, sync_interval)
        try:
            await gather_or_cancel(*map(runner.start, programs))
        except ProgramFailedError as error:
            for name in runner.pids():
                await runner.stop(name)
            if error.lost_a_port and attempt < _ATTEMPTS:
                continue
            raise
        urls = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
        access = NatsAccess(urls, held.passwords, held.issuer_seed)
        return NatsCluster(access, names, monitors, directory)
    raise PermanentError("the last attempt returns or raises")


def _programs(
    directory: Path,
    monitors: Mapping[str, str],
    ports: Sequence[int],
    held: Secrets,
    sync_interval: str,
) -> list[ProcessSpec]:
    routes = {name: free_port() for name in monitors}
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
                f"routes: {json.dumps(addresses)} }}\nhttp: {json.dumps(monitors[name])}"
            ),
        )
        for name, port in zip(monitors, ports, strict=True)
    ]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await condition():  # noqa: ASYNC110 - a condition of servers
            await asyncio.sleep(0.05)


async def connect_as(cluster: NatsCluster, role: str) -> JetStreamBus:
    """``admin`` owns the streams like the claim-controller, and may do more."""
    return await connect(
        cluster.access.url,
        name=role,
        role=CLAIM_CONTROLLER if role == ADMIN else role,
        user=role,
        password=cluster.access.passwords[role],
        wait_s=30.0,
    )


async def make_streams(owner: JetStreamBus) -> None:
    """Once the servers have found each other, which they may not have yet."""

    async def made() -> bool:
        try:
            for spec in (*STREAMS, log_spec("p", 1)):
                await owner.ensure(spec)
                await owner.raise_replicas(spec.name)
            states = [await owner.state(spec.name) for spec in (*STREAMS, log_spec("p", 1))]
        except BusUnavailableError:
            return False
        return all(state and state.replicas == 3 for state in states)

    await until(made)
