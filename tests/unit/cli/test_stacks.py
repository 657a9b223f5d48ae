"""The verbs about local stacks, on a stack file without a stack."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from dray_cli import status as status_module
from dray_cli.fail import fail
from dray_cli.kill import kill
from dray_cli.status import status
from dray_cli.target import kubeconfig_option
from dray_sandbox import stack_file
from dray_sandbox.stack_file import ProcessRecord, StackFile, process_record, write_stack_file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_file, "stack_directory", lambda name: tmp_path / name)
    monkeypatch.delenv(stack_file.NAME_VARIABLE, raising=False)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def stack(sleeper: subprocess.Popen[bytes]) -> StackFile:
    """One process runs, one has ended."""
    pid = sleeper.pid
    made = StackFile(
        name="mine",
        directory="d",
        control_plane="sandbox",
        server="https://127.0.0.1:1",
        kubeconfig="mine.kubeconfig",
        kubeconfigs={},
        nats_url="nats://127.0.0.1:2",
        nats_passwords={},
        restarts=True,
        supervisor=process_record("supervisor", pid),
        processes=(
            process_record("nats-server", pid, health_url="nats://127.0.0.1:2", restarts=2),
            ProcessRecord(name="allocator", pid=pid, started="another time"),
        ),
    )
    write_stack_file(made)
    return made


def test_the_status_shows_each_process_and_how_to_use_the_stack(stack: StackFile) -> None:
    done = CliRunner().invoke(status, ["--stack", "mine"])
    assert done.exit_code == 1  # the allocator has ended
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    pid = stack.supervisor.pid
    assert lines[1:4] == [
        "PROCESS STATE RESTARTS PID HEALTH PAGE",
        f"nats-server running 2 {pid} nats://127.0.0.1:2",
        f"allocator ended 0 {pid} -",
    ]
    assert lines[-1] == "export KUBECONFIG=mine.kubeconfig"


def test_programs_read_the_same_as_json(stack: StackFile) -> None:
    done = CliRunner().invoke(status, ["-o", "json"])  # the only stack that runs
    found = json.loads(done.output)
    assert found["name"] == "mine"
    assert [(one["name"], one["state"]) for one in found["processes"]] == [
        ("nats-server", "running"),
        ("allocator", "ended"),
    ]


def test_a_process_is_ready_as_soon_as_its_page_says_so(
    stack: StackFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"http://127.0.0.1:3/readyz": True, "http://127.0.0.1:4/readyz": False}

    def answers(url: str) -> object:
        async def check() -> bool:
            return pages[url]

        return check

    monkeypatch.setattr(status_module, "answers", answers)
    pid = stack.supervisor.pid
    processes = tuple(process_record(url[-8:], pid, health_url=url) for url in pages)
    write_stack_file(msgspec.structs.replace(stack, processes=processes))
    done = CliRunner().invoke(status, ["-o", "json"])
    states = [one["state"] for one in json.loads(done.output)["processes"]]
    assert states == ["ready", "not ready"]


def test_a_killed_process_is_gone(stack: StackFile, sleeper: subprocess.Popen[bytes]) -> None:
    done = CliRunner().invoke(kill, ["nats-server", "--stack", "mine"])
    assert done.exit_code == 0
    assert "the stack 'mine' starts it again" in done.output
    assert sleeper.wait(20) == -9


def test_a_process_that_the_stack_lacks_is_wrong_use(stack: StackFile) -> None:
    done = CliRunner().invoke(kill, ["nobody"])
    assert done.exit_code == 2
    assert "it has nats-server, allocator" in done.output


def test_a_process_that_does_not_run_is_not_killed(stack: StackFile) -> None:
    done = CliRunner().invoke(kill, ["allocator"])
    assert "allocator is not running now" in str(done.exception)


def test_a_stack_that_does_not_run_is_named_with_those_that_do(stack: StackFile) -> None:
    done = CliRunner().invoke(status, ["--stack", "other"])
    assert str(done.exception) == "no local stack 'other' runs; there is mine"


@click.command()
@kubeconfig_option
def verb(kubeconfig: str | None) -> None:
    click.echo(kubeconfig)


def test_a_verb_about_a_cluster_takes_the_named_stacks(stack: StackFile, tmp_path: Path) -> None:
    assert CliRunner().invoke(verb, ["--stack", "mine"]).output == "mine.kubeconfig\n"
    path = tmp_path / "kubeconfig"
    path.touch()
    done = CliRunner().invoke(verb, ["--stack", "mine", "--kubeconfig", str(path)])
    assert done.exit_code == 2
    assert "give one of them" in done.output


def test_a_simulated_gpu_fails_and_is_repaired(
    stack: StackFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gpus(_: StackFile) -> list[str]:
        return ["sim-1/gpu-0", "sim-1/gpu-3"]

    monkeypatch.setattr("dray_cli.fail._gpus", gpus)
    write_stack_file(msgspec.structs.replace(stack, directory=str(tmp_path)))
    file = tmp_path / "n" / "sim-1" / "state" / "unhealthy"
    file.parent.mkdir(parents=True)
    for arguments, printed, text in (
        (["sim-1/gpu-3"], "sim-1/gpu-3 is unhealthy: xid-79", "3 xid-79\n"),
        (
            ["sim-1/gpu-0", "--xid", "48"],
            "sim-1/gpu-0 is unhealthy: xid-48",
            "3 xid-79\n0 xid-48\n",
        ),
        (["sim-1/gpu-3", "--repair"], "sim-1/gpu-3 is healthy again", "0 xid-48\n"),
    ):
        done = CliRunner().invoke(fail, [*arguments, "--stack", "mine"])
        assert done.output == f"{printed}\n"
        assert file.read_text() == text
    done = CliRunner().invoke(fail, ["sim-1/gpu-9", "--stack", "mine"])
    assert done.exit_code == 2
    assert "no GPU 'sim-1/gpu-9'; there are sim-1/gpu-0, sim-1/gpu-3" in done.output
    write_stack_file(msgspec.structs.replace(stack, kubelet="real"))
    refused = CliRunner().invoke(fail, ["sim-1/gpu-3", "--stack", "mine"]).exception
    assert "real kubelets" in str(refused)
