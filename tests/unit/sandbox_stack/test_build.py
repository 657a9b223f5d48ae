"""Building the control plane: once, whole, and with an error that says what to do."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dray.api.errors import InvalidInputError
from dray_sandbox.controlplane.build import (
    MINOR_VARIABLE,
    MINORS,
    GoBinary,
    build,
    control_plane,
    module_directory,
    wanted_minor,
)
from dray_sandbox.golang.failures import BuildError, CannotBuildHereError
from dray_sandbox.golang.program import build as golang_build

FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go1.99.0 linux/amd64"; exit 0; fi
echo build >> "$BUILDS"
while [ "$1" != -o ]; do shift; done
{body}
"""
WORKS = 'echo binary > "$2"'
FAILS = "echo main.go:1: syntax error; exit 3"
HANGS = 'echo half > "$2"; echo $$ > "$BUILDS.pid"; exec sleep 60'
"""As a build that is interrupted: half of the binary is there."""


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
    go.chmod(0o755)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


async def built(say: Callable[[str], None] = lambda line: None) -> GoBinary:
    """What is in the cache now, which must be what a build that works makes."""
    binary = await build(say)
    assert lines_of(Path(binary.program("kubectl"))) == ["binary"]
    return binary


async def appears(path: Path) -> str:
    def content() -> str:
        return path.read_text() if path.exists() else ""

    async with asyncio.timeout(20):
        while not content().endswith("\n"):  # noqa: ASYNC110 - a file has no event to wait for
            await asyncio.sleep(0.02)
    return content()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_two_runs_at_once_build_once_and_the_second_says_for_whom_it_waits(
    tmp_path: Path, builds: Path
) -> None:
    fake_go(tmp_path, f"sleep 0.2; {WORKS}")
    expected: list[str] = []
    first, second = await asyncio.gather(built(expected.append), built(expected.append))
    assert first == second
    assert lines_of(builds) == ["build"]
    assert any(line.startswith("building Kubernetes") for line in expected)
    assert [line for line in expected if "waiting" in line] == [
        f"another run (process {os.getpid()}) builds Kubernetes {first.version}: waiting for it"
    ]


async def test_a_failed_build_says_why_and_leaves_nothing_to_be_used(
    tmp_path: Path, builds: Path
) -> None:
    fake_go(tmp_path, FAILS)
    with pytest.raises(BuildError, match=r"exit code 3[\s\S]*main.go:1: syntax error"):
        await build(lambda line: None)
    fake_go(tmp_path, WORKS)
    await built()


@pytest.mark.parametrize(
    ("expected", "why", "what_to_do"),
    [
        (
            "link: write /tmp/x: no space left on device",
            "the disk is full (link: write /tmp/x: no space left on device)",
            "free 6 GB",
        ),
        (
            "main.go:2: k8s.io/api@v1: module lookup disabled by GOPROXY=off",
            "Go modules can't be downloaded",
            "connect this machine to the network",
        ),
        (
            "dial tcp: lookup modules.example.com: no such host",
            "Go modules can't be downloaded",
            "set GOPROXY",
        ),
        ("/usr/lib/go/link: signal: killed", "memory ran out", "free 2.5 GB of memory"),
        ("verifying k8s.io/api@v1: checksum mismatch", "a downloaded module", "go clean -modcache"),
    ],
)
async def test_what_this_machine_lacks_is_one_sentence_with_what_to_do(
    tmp_path: Path, builds: Path, expected: str, why: str, what_to_do: str
) -> None:
    fake_go(tmp_path, f"echo k8s.io/api/core/v1; echo '{expected}'; echo another line; exit 1")
    with pytest.raises(CannotBuildHereError) as failed:
        await build(lambda line: None)
    sentence = str(failed.value)
    assert sentence.startswith("Kubernetes 1.36.3 can't be built: ")
    assert why in sentence
    assert what_to_do in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("harm", ["cut off", "changed", "no hash"])
async def test_a_damaged_binary_is_built_again(tmp_path: Path, builds: Path, harm: str) -> None:
    fake_go(tmp_path, WORKS)
    binary = Path((await built()).directory) / "k8s"
    if harm == "cut off":
        os.truncate(binary, 3)
    elif harm == "changed":
        binary.write_text("bimary\n")
    else:
        binary.with_name("k8s.blake2b").unlink()
    expected: list[str] = []
    await built(expected.append)
    assert f"{binary} does not match its hash: building it again" in expected
    assert len(lines_of(builds)) == 2


async def test_links_that_lead_elsewhere_are_created_again(tmp_path: Path, builds: Path) -> None:
    fake_go(tmp_path, WORKS)
    link = (await built()).directory / "kubectl"
    link.unlink()
    link.symlink_to("gone")
    await built()


async def test_an_interrupted_build_ends_go_and_leaves_nothing(
    tmp_path: Path, builds: Path
) -> None:
    fake_go(tmp_path, HANGS)
    building = asyncio.create_task(build(lambda line: None))
    go = int(await appears(tmp_path / "builds.pid"))
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert not runs(go)
    (place,) = (tmp_path / "cache/dray/controlplane").iterdir()
    assert sorted(path.name for path in place.iterdir()) == ["build.log", "lock"]


def _heed_interrupts() -> None:
    """A shell's background jobs, these tests among them, ignore SIGINT, and so would the child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_run_that_is_killed_while_it_builds_leaves_nothing_that_is_used(
    tmp_path: Path, builds: Path, number: signal.Signals
) -> None:
    fake_go(tmp_path, HANGS)
    command = [sys.executable, "-m", "dray_sandbox.controlplane", "build"]
    with subprocess.Popen(  # noqa: ASYNC220
        command, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    ) as run:
        go = int(await appears(tmp_path / "builds.pid"))
        run.send_signal(number)
        _, expected = await asyncio.to_thread(run.communicate)
    async with asyncio.timeout(10):
        while runs(go):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    if number == signal.SIGINT:
        assert run.returncode == 130
        assert "Traceback" not in expected
        assert "continues with what was compiled" in expected
    fake_go(tmp_path, WORKS)
    binary = await built()
    assert not (binary.directory / "work").exists()


async def test_a_cache_that_can_not_be_used_is_named(tmp_path: Path, builds: Path) -> None:
    fake_go(tmp_path, WORKS)
    in_the_way = tmp_path / "cache" / "dray"
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file")
    with pytest.raises(CannotBuildHereError, match=f"{in_the_way}.*XDG_CACHE_HOME"):
        await build(lambda line: None)


async def test_a_second_control_plane_in_one_folder_is_refused(
    tmp_path: Path, builds: Path
) -> None:
    fake_go(tmp_path, WORKS)
    command = [sys.executable, "-m", "dray_sandbox.controlplane", "run", "--directory"]
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = await asyncio.to_thread(
            subprocess.run, [*command, str(tmp_path)], capture_output=True, text=True
        )
    assert ended.returncode == 1
    assert f"another control plane runs in {tmp_path}: stop it, or choose another" in ended.stderr


@pytest.mark.parametrize("minor", MINORS)
async def test_the_minor_that_is_asked_for_is_built(
    tmp_path: Path, builds: Path, monkeypatch: pytest.MonkeyPatch, minor: str
) -> None:
    fake_go(tmp_path, WORKS)
    monkeypatch.setenv(MINOR_VARIABLE, minor)
    binary = await built()
    assert binary.version.startswith(f"{minor}.")
    assert binary.directory.name.startswith(binary.version)
    monkeypatch.setenv(MINOR_VARIABLE, "1.36")
    assert await build(lambda line: None, minor) == binary


def test_an_unknown_minor_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MINOR_VARIABLE, "1.33")
    with pytest.raises(InvalidInputError, match=r"'1.33'.*1\.34, 1\.35, 1\.36, 1\.37"):
        wanted_minor()


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


async def test_a_second_program_of_a_module_is_built_from_its_own_folder(
    tmp_path: Path, builds: Path
) -> None:
    fake_go(tmp_path, f'{WORKS}; echo "$3" >> "$BUILDS"')
    module = tmp_path / "module"
    (module / "second").mkdir(parents=True)
    for name in ("main.go", "go.sum", "go.mod"):
        (module / name).write_bytes((module_directory() / name).read_bytes())
    (module / "second" / "main.go").write_text("package main")
    program = replace(control_plane(module), package="second", file="second")

    binary = await golang_build(program, lambda line: None)

    assert (binary.name, lines_of(builds)) == ("second", ["build", "./second"])
    before = program.directory("1.99.0")
    (module / "main.go").write_text("package main")
    assert program.directory("1.99.0") == before == binary.parent
    (module / "second" / "main.go").write_text("package main // changed")
    assert program.directory("1.99.0") != before


async def test_a_tool_of_a_module_is_built_by_its_import_path(tmp_path: Path, builds: Path) -> None:
    fake_go(tmp_path, f'{WORKS}; echo "$3" >> "$BUILDS"')
    program = replace(control_plane(module_directory()), tool="example.com/x/cmd/y", file="y")

    binary = await golang_build(program, lambda line: None)

    assert (binary.name, lines_of(builds)) == ("y", ["build", "example.com/x/cmd/y"])
