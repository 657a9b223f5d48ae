"""A connection over TLS: by the authority of a file, and never in clear text by accident."""

import asyncio
import datetime
import json
from pathlib import Path

import pytest

from dray.bus import jetstream
from dray.bus.ports import Bus, BusUnavailableError
from dray.bus.server_reload import reload_if_outdated
from dray.runtime.certificates import Issued, issue
from dray_sandbox.nats_server import binary
from dray_sandbox.probes import listens
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.tcp_ports import free_port

PASSWORD = "p-of-the-test"
NAME = "nats-server"


@pytest.fixture
async def runner(tmp_path):
    """Runs the server."""
    made = Runner(tmp_path / "logs")
    yield made
    await made.stop_all()


def issued() -> Issued:
    return issue("CA of NATS", "nats", ["127.0.0.1"], datetime.timedelta(days=90))


def write(folder: Path, certificates: Issued) -> Path:
    """The authority's file."""
    for name, content in {
        "ca.crt": certificates.authority,
        "tls.crt": certificates.certificate,
        "tls.key": certificates.key,
    }.items():
        (folder / name).write_bytes(content)
    return folder / "ca.crt"


async def start(runner: Runner, folder: Path, *, tls: bool) -> int:
    """A server with one user; its port."""
    files = {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}

    def program(port: int) -> ProcessSpec:
        users = {"users": [{"user": "claim-controller", "password": PASSWORD}]}
        system = {"users": [{"user": "system", "password": PASSWORD}]}
        configuration = {
            "host": "127.0.0.1",
            "port": port,
            "trace": True,
            "jetstream": {"store_dir": str(folder / "store")},
            "accounts": {"DRAY": users | {"jetstream": "enabled"}, "SYS": system},
            "system_account": "SYS",
            **({"tls": files} if tls else {}),
        }
        (folder / "nats.conf").write_text(json.dumps(configuration))

        async def ready() -> bool:
            return listens(runner.pids().get(NAME, 0), port)

        argv = (binary(), "--config", str(folder / "nats.conf"))
        return ProcessSpec(name=NAME, argv=argv, ready=ready)

    return await runner.start_on_free_port(program)


async def connect(url: str, ca_file: Path | None, wait_s: float = 10.0) -> Bus:
    return await jetstream.connect(
        url,
        name="test",
        user="claim-controller",
        password=PASSWORD,
        ca_file=ca_file,
        wait_s=wait_s,
    )


async def explained(bus: Bus, words: str) -> None:
    """Wait until the bus says so."""
    async with asyncio.timeout(30.0):
        while words not in (bus.problem or ""):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_server_is_known_by_the_authority_of_the_file_and_by_the_renewed_file(
    tmp_path, runner
):
    ca_file = write(tmp_path, issued())
    port = await start(runner, tmp_path, tls=True)
    bus = await connect(f"tls://127.0.0.1:{port}", ca_file)
    assert bus.problem is None
    await bus.close()

    other = tmp_path / "other.crt"
    other.write_bytes(issued().authority)
    bus = await connect(f"tls://127.0.0.1:{port}", other, wait_s=0.0)
    await explained(bus, "certificate verify failed")

    other.write_bytes(ca_file.read_bytes())
    async with asyncio.timeout(30.0):
        await bus._connection.next_session()  # type: ignore[attr-defined]
    assert bus.problem is None
    await bus.close()


async def test_no_password_is_sent_to_a_server_without_tls(tmp_path, runner):
    ca_file = write(tmp_path, issued())
    port = await start(runner, tmp_path, tls=False)

    bus = await connect(f"tls://127.0.0.1:{port}", ca_file, wait_s=0.0)

    await explained(bus, "offers no TLS")
    assert "CONNECT" not in (tmp_path / "logs" / f"{NAME}.log").read_text()
    await bus.close()


async def test_a_missing_file_is_named(tmp_path):
    bus = await connect(f"tls://127.0.0.1:{free_port()}", tmp_path / "none.crt", wait_s=0.0)

    await explained(bus, f"{tmp_path}/none.crt can't be read")
    await bus.close()


async def test_a_server_loads_a_renewed_certificate_without_a_restart(tmp_path, runner):
    first, second = issued(), issued()
    ca_file = write(tmp_path, first)
    port = await start(runner, tmp_path, tls=True)
    url = f"tls://127.0.0.1:{port}"
    connected = await connect(url, ca_file)
    both = tmp_path / "both.crt"
    both.write_bytes(first.authority + second.authority)

    async def reload(certificate: bytes) -> bool:
        return await reload_if_outdated(
            url, user="system", password=PASSWORD, ca_file=both, certificate=certificate
        )

    assert not await reload(first.certificate)
    write(tmp_path, second)
    assert await reload(second.certificate)

    async with asyncio.timeout(30.0):
        while await reload(second.certificate):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert connected.problem is None
    await connected.close()


async def test_a_server_that_is_away_or_refuses_is_named(tmp_path, runner):
    ca_file = write(tmp_path, issued())
    port = await start(runner, tmp_path, tls=True)

    for url, user in (
        (f"tls://127.0.0.1:{free_port()}", "system"),
        (f"tls://127.0.0.1:{port}", "x"),
    ):
        with pytest.raises(BusUnavailableError, match=url):
            await reload_if_outdated(
                url, user=user, password=PASSWORD, ca_file=ca_file, certificate=b"other"
            )
