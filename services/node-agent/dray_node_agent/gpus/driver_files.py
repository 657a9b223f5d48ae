"""The parts of NVIDIA's driver that a container needs: libraries, programs and device files.

They are found as nvidia-container-toolkit finds them: the libraries that carry the driver's
version, in the folder of ``libcuda.so.VERSION``. If ``nvidia-ctk`` is installed, its output is
used instead. The parts for graphics are left out.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from dray_node_agent.decisions.gpus import Gpu

Edits = dict[str, Any]
"""``containerEdits`` of a CDI specification."""

_LIBRARY_FOLDERS: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)
_PROGRAM_FOLDERS: Final = ("usr/bin", "usr/sbin", "bin", "usr/local/nvidia/bin")
_PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_SOCKETS: Final = (
    "run/nvidia-persistenced/socket",
    "run/nvidia-fabricmanager/socket",
)
_CONTROL_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_CTK: Final = "nvidia-ctk"
_CTK_DEADLINE_S: Final = 20.0
_READ_ONLY: Final = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


class DriverFiles:
    """The files of the driver that is installed below ``root``, as this process sees it.

    ``host_root``: the same folder on the node; container runtimes read its paths.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        host_root: Path = Path("/"),
        dev: Path = Path("/dev"),
        proc: Path = Path("/proc"),
        run: Callable[[Sequence[str]], str] | None = None,
    ) -> None:
        """``run``: the output of a command; raises OSError, subprocess.SubprocessError."""
        self._root = root
        self._host_root = host_root
        self._dev = dev
        self._proc = proc
        self._run = run or _run
        self._version: str | None = None
        self._edits: Edits = {}
        self._of_gpu: dict[str, Edits] = {}

    def driver_edits(self, version: str) -> Edits:
        """The edits that every container with a GPU needs; found again if the driver's version
        changes."""
        if version != self._version:
            self._version = version
            self._edits, self._of_gpu = self._generated() or (self._found(version), {})
        return self._edits

    def with_edits(self, gpus: Sequence[Gpu]) -> Iterable[Gpu]:
        """The GPUs with the edits that ``nvidia-ctk`` generated for them, if it is installed."""
        if not self._of_gpu:
            return gpus
        return [msgspec.structs.replace(gpu, edits=self._of_gpu.get(gpu.uuid, {})) for gpu in gpus]

    def device_nodes(self, minor: int, address: str) -> tuple[str, ...]:
        """Device files of a card."""
        return (f"/dev/nvidia{minor}", *self._render_nodes(address), *self._control_nodes())

    def capabilities(self, minor: int, gpu_instance: int, compute_instance: int) -> tuple[str, ...]:
        """Device files that give access to a MIG instance, from the kernel's list of them."""
        try:
            text = (self._proc / "driver/nvidia-caps/mig-minors").read_text()
        except OSError:
            return ()
        minors = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
        names = (
            f"gpu{minor}/gi{gpu_instance}/access",
            f"gpu{minor}/gi{gpu_instance}/ci{compute_instance}/access",
        )
        found = (minors[name] for name in names if name in minors)
        return tuple(f"/dev/nvidia-caps/nvidia-cap{number}" for number in found)

    def _control_nodes(self) -> Iterator[str]:
        for name in _CONTROL_NODES:
            if (self._dev / name).exists():
                yield f"/dev/{name}"

    def _render_nodes(self, address: str) -> Iterator[str]:
        """Device files for encoding and decoding video."""
        for kind in ("card", "render"):
            link = self._dev / "dri" / "by-path" / f"pci-{address}-{kind}"
            if address and link.exists():
                yield f"/dev/dri/{Path(os.path.realpath(link)).name}"

    def _found(self, version: str) -> Edits:
        mounts = [
            *self._libraries(version),
            *(self._mount(path) for path in self._programs()),
            *(
                self._mount(self._root / socket, options=[*_READ_ONLY, "noexec"])
                for socket in _SOCKETS
                if (self._root / socket).exists()
            ),
            *(self._mount(path) for path in self._firmware(version)),
        ]
        return {"mounts": mounts} if mounts else {}

    def _libraries(self, version: str) -> Iterator[dict[str, Any]]:
        """Every library of this version, also under the names that programs link to, so that no
        hook must create links."""
        folder = self._library_folder(version)
        if folder is None:
            structlog.get_logger().warning(
                "no driver libraries found: containers must bring their own, or the container "
                "runtime must add them",
                wanted=f"libcuda.so.{version}",
                below=str(self._root),
            )
            return
        links = _links_to(folder)
        for path in sorted(folder.glob(f"*.so.{version}")):
            yield self._mount(path)
            for name in links.get(path.name, ()):
                yield self._mount(path, name=name)

    def _library_folder(self, version: str) -> Path | None:
        for name in _LIBRARY_FOLDERS:
            folder = self._root / name
            if (folder / f"libcuda.so.{version}").exists():
                return folder
        return None

    def _programs(self) -> Iterator[Path]:
        for program in _PROGRAMS:
            for folder in _PROGRAM_FOLDERS:
                path = self._root / folder / program
                if path.exists():
                    yield path
                    break

    def _firmware(self, version: str) -> Iterator[Path]:
        for folder in ("lib/firmware/nvidia", "usr/lib/firmware/nvidia"):
            if found := sorted((self._root / folder / version).glob("gsp*.bin")):
                yield from found
                return

    def _mount(
        self, path: Path, *, name: str = "", options: list[str] | None = None
    ) -> dict[str, Any]:
        """A bind mount under the path that the file has below the driver's root."""
        below = path.relative_to(self._root)
        inside = Path("/") / below
        return {
            "hostPath": str(self._host_root / below),
            "containerPath": str(inside.with_name(name) if name else inside),
            "options": options or _READ_ONLY,
        }

    def _generated(self) -> tuple[Edits, dict[str, Edits]] | None:
        """The edits that ``nvidia-ctk cdi generate`` prints, for all containers and by device; None
        if it is not installed or fails."""
        program = next(
            (path for one in _PROGRAM_FOLDERS if (path := self._root / one / _CTK).exists()), None
        )
        if program is None:
            return None
        command = [
            str(program),
            *("cdi", "generate", "--format=json", "--device-name-strategy=uuid", "--output="),
        ]
        if self._root != Path("/"):
            inside = Path("/") / program.relative_to(self._root)
            command = ["chroot", str(self._root), str(inside), *command[1:]]
        try:
            spec = json.loads(self._run(command))
            devices = {one["name"]: dict(one["containerEdits"]) for one in spec["devices"]}
            return dict(spec.get("containerEdits") or {}), devices
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            structlog.get_logger().warning(
                "nvidia-ctk failed; searching for the driver's files instead", error=str(error)
            )
            return None


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_CTK_DEADLINE_S, check=True
    )
    return done.stdout


def _links_to(folder: Path) -> dict[str, list[str]]:
    """Names of links, by the name of the file in the same folder that they lead to."""
    links: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and re.search(r"\.so(\.\d+)*$", path.name):
            target = Path(os.path.realpath(path))
            if target.parent == Path(os.path.realpath(folder)):
                links.setdefault(target.name, []).append(path.name)
    return links
