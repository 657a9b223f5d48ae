"""``stack.json``: secret, whole, and recognised when it is stale."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dray_sandbox import stack_file
from dray_sandbox.stack_file import (
    StackFile,
    end_stack,
    is_alive,
    path_of,
    process_record,
    read_stack_file,
    remove_stack_file,
    write_stack_file,
)


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


def a_stack(name: str = "default", pid: int | None = None) -> StackFile:
    return StackFile(
        name=name,
        directory="d",
        control_plane="sandbox",
        server="https://127.0.0.1:1",
        kubeconfig="k",
        kubeconfigs={},
        nats_url="nats://127.0.0.1:2",
        nats_passwords={"admin": "secret"},
        supervisor=process_record("supervisor", pid or os.getpid()),
    )


def test_it_is_found_by_name_by_variable_and_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    write_stack_file(a_stack("default"))
    write_stack_file(a_stack("other"))
    found = read_stack_file()
    assert found is not None
    assert found.name == "default"
    monkeypatch.setenv(stack_file.NAME_VARIABLE, "other")
    found = read_stack_file()
    assert found is not None
    assert found.name == "other"
    assert found == a_stack("other")


def test_the_only_one_that_runs_is_meant_where_no_name_is_given() -> None:
    write_stack_file(a_stack("demo"))
    found = read_stack_file()
    assert found is not None
    assert found.name == "demo"
    write_stack_file(a_stack("another"))
    assert read_stack_file() is None
    assert read_stack_file("default") is None


def test_only_its_owner_can_read_the_passwords() -> None:
    path = write_stack_file(a_stack())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_stack_whose_supervisor_ended_is_stale(sleeper: subprocess.Popen[bytes]) -> None:
    write_stack_file(a_stack(pid=sleeper.pid))
    assert read_stack_file() is not None
    sleeper.kill()
    sleeper.wait()
    assert read_stack_file() is None


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="only Linux's /proc tells when a process started"
)
def test_another_process_of_the_same_id_is_not_taken_for_it() -> None:
    record = msgspec.structs.replace(process_record("p", os.getpid()), started="1")
    assert not is_alive(record)


def test_no_file_and_a_broken_file_are_not_a_stack() -> None:
    assert read_stack_file("none") is None
    path = path_of("broken")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert read_stack_file("broken") is None
    remove_stack_file("broken")
    remove_stack_file("broken")


def test_ending_a_stack_ends_the_supervisor_and_what_is_left(
    sleeper: subprocess.Popen[bytes],
) -> None:
    stack = a_stack(pid=sleeper.pid)
    assert end_stack(stack, within_s=30)
    assert not is_alive(stack.supervisor)
