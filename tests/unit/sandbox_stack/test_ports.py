"""Ports of the local stack: free ones, lost races, and who listens."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dray.api.errors import PermanentError
from dray_sandbox import tcp_ports
from dray_sandbox.access import make_credentials
from dray_sandbox.controlplane.build import GoBinary
from dray_sandbox.controlplane.launch import start_control_plane
from dray_sandbox.probes import listens
from dray_sandbox.processes import PortsTakenError, ProgramFailedError, Runner


async def start(tmp_path: Path, etcd: str) -> None:
    program = tmp_path / "bin" / "etcd"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{etcd}\n")
    program.chmod(0o755)
    runner = Runner(tmp_path / "logs")
    try:
        await start_control_plane(
            runner,
            GoBinary("1.36.3", program.parent),
            tmp_path,
            make_credentials(tmp_path / "access"),
            context="test",
        )
    finally:
        await runner.stop_all()


async def test_when_every_port_is_lost_to_others_one_sentence_says_so(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    lost = f"echo $2 >> {tried}; echo listen tcp: bind: address already in use; exit 1"
    message = r"etcd can't start: other programs took ports .* run it again"
    with pytest.raises(PortsTakenError, match=message) as failed:
        await start(tmp_path, lost)
    ports = [line.rpartition(":")[2] for line in tried.read_text().splitlines()]
    assert len(ports) == 3
    assert all(port in str(failed.value) for port in ports)


async def test_another_failure_is_reported_at_once_with_its_last_output(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailedError, match=r"etcd ended with exit code 4[\s\S]*corrupt"):
        await start(tmp_path, "echo the data is corrupt; exit 4")


def test_only_a_process_that_listens_is_named_for_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(os.getpid(), port)
        assert not listens(os.getppid(), port)
    assert not listens(os.getpid(), port)


def only_block(monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
    monkeypatch.setattr(tcp_ports, "_FIRST_PORT", first)
    monkeypatch.setattr(tcp_ports, "_LAST_PORT", last)
    monkeypatch.setattr(tcp_ports, "_own_ports", [])


def test_no_port_is_chosen_twice_for_programs_that_start_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only_block(monkeypatch, 19_000, 19_049)
    ports = [tcp_ports.free_port() for _ in range(15)]
    assert len(set(ports)) == len(ports)


def test_the_ports_of_a_process_are_no_other_ones_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_block = (
        "import sys; from dray_sandbox import tcp_ports as p; p._FIRST_PORT = 19_050; "
        "p._LAST_PORT = 19_099; print(p.free_port(), flush=True); sys.stdin.read()"
    )
    only_block(monkeypatch, 19_050, 19_099)
    with subprocess.Popen(
        [sys.executable, "-c", take_block], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(PermanentError):
            tcp_ports.free_port()
        other.kill()
    assert 19_050 <= tcp_ports.free_port() <= 19_099


def test_ports_need_no_folder_that_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container whose user has no home."""
    only_block(monkeypatch, 19_100, 19_149)
    home = tmp_path / "a-file"
    home.touch()
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home))
    assert 19_100 <= tcp_ports.free_port() <= 19_149


def test_without_a_free_port_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        only_block(monkeypatch, port, port)
        with pytest.raises(PermanentError, match="is free: end local stacks"):
            tcp_ports.free_port()
