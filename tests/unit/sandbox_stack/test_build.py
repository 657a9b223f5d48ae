"""Building the control plane: once, whole, and with an error that says what to do."""

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from dray.domain.errors import InvalidInputError
from dray_sandbox.controlplane.build import (
    MINOR_VARIABLE,
    MINORS,
    build,
    control_plane,
    module_directory,
)
from dray_sandbox.golang import toolchain
from dray_sandbox.golang.program import BuildError

FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go1.99.0 linux/amd64"; exit 0; fi
echo build >> "$BUILDS"
while [ "$1" != -o ]; do shift; done
{body}
"""
WORKS = 'sleep 0.2; echo binary > "$2"'
FAILS = "echo 'no disk'; exit 3"


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and the file in which the fake Go notes each build."""
    note = tmp_path / "builds"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BUILDS", str(note))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return note


def fake_go(tmp_path: Path, body: str) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir(exist_ok=True)
    go.write_text(FAKE_GO.replace("{body}", body))
    go.chmod(go.stat().st_mode | stat.S_IXUSR)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


async def test_two_runs_at_once_build_once(tmp_path: Path, builds: Path) -> None:
    fake_go(tmp_path, WORKS)
    said: list[str] = []
    first, second = await asyncio.gather(build(said.append), build(said.append))
    assert first == second
    assert lines_of(builds) == ["build"]
    assert lines_of(Path(first.program("kubectl"))) == ["binary"]
    assert any("building Kubernetes" in line for line in said)


async def test_a_failed_build_says_why_and_leaves_nothing_to_be_used(
    tmp_path: Path, builds: Path
) -> None:
    fake_go(tmp_path, FAILS)
    with pytest.raises(BuildError, match=r"exit code 3[\s\S]*no disk"):
        await build(lambda line: None)
    fake_go(tmp_path, WORKS)
    assert lines_of(Path((await build(lambda line: None)).program("etcd"))) == ["binary"]


@pytest.mark.parametrize("minor", MINORS)
async def test_the_minor_that_is_asked_for_is_built(
    tmp_path: Path, builds: Path, monkeypatch: pytest.MonkeyPatch, minor: str
) -> None:
    fake_go(tmp_path, WORKS)
    monkeypatch.setenv(MINOR_VARIABLE, minor)
    binary = await build(lambda line: None)
    assert binary.version.startswith(f"{minor}.")
    assert binary.directory.name.startswith(binary.version)


async def test_an_unknown_minor_is_refused_with_the_known_ones(
    builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MINOR_VARIABLE, "1.33")
    with pytest.raises(InvalidInputError, match=r"'1.33'.*1\.34, 1\.35, 1\.36, 1\.37"):
        await build(lambda line: None)


def test_the_cache_place_changes_with_the_module_and_with_go(tmp_path: Path) -> None:
    module = tmp_path / "module"
    module.mkdir()
    for name in ("main.go", "go.sum", "go.mod"):
        (module / name).write_bytes((module_directory() / name).read_bytes())
    program = control_plane(module)
    before = program.directory("1.26.1")
    assert program.directory("1.26.2") != before
    assert replace(program, tags=("other",)).directory("1.26.1") != before
    (module / "main.go").write_text("package main")
    assert program.directory("1.26.1") != before


def test_an_older_go_gives_way_to_the_wheels(tmp_path: Path, builds: Path) -> None:
    fake_go(tmp_path, WORKS)
    assert toolchain.find("1.98.0").path is not None
    assert toolchain.find("1.99.1") == toolchain.Toolchain(toolchain.WHEEL_VERSION, None)


@pytest.mark.parametrize("minor", MINORS)
def test_the_wheels_go_is_new_enough_for_every_module(minor: str) -> None:
    needed = control_plane(module_directory(), minor).oldest_go()
    assert toolchain._numbers(toolchain.WHEEL_VERSION) >= toolchain._numbers(needed)
