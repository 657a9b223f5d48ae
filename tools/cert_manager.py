"""cert-manager's controllers, built from its Go module, and its custom resources."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dray_sandbox.golang import program as golang
from dray_sandbox.golang import toolchain
from dray_sandbox.golang.program import GoProgram
from dray_sandbox.paths import checkout

_MODULE: Final = "github.com/cert-manager/cert-manager"
_FOLDER: Final = checkout() / "tests" / "conformance" / "cert-manager"


def cert_manager_program() -> GoProgram:
    """cert-manager in the version that the module file pins."""
    version = golang.required_version(_FOLDER, "go.mod", _MODULE)
    return GoProgram(
        module=_FOLDER,
        version=version,
        title=f"cert-manager {version}",
        takes="about 3 min on 2 cores",
        cache="cert-manager",
        file="cert-manager",
    )


async def build_cert_manager(progress: Callable[[str], None]) -> Path:
    """The binary's path; built now if the cache has none. Raises BuildError, ToolchainError."""
    return await golang.build(cert_manager_program(), progress)


async def custom_resources(progress: Callable[[str], None]) -> Path:
    """The folder of its CustomResourceDefinitions, in Go's module cache. Raises ToolchainError."""
    needed = toolchain.find_toolchain(cert_manager_program().oldest_go())
    go = await toolchain.install(needed, progress)
    command = [go, "mod", "download", "-json", _MODULE]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=_FOLDER, capture_output=True, check=True, text=True
    )
    return Path(json.loads(done.stdout)["Dir"]) / "deploy" / "crds"
