"""Builds the shim of NVML, and describes the machine that it plays."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_shim.c")
LIBRARY = "libnvidia-ml.so.1"
A100 = "NVIDIA A100-SXM4-40GB"
VERSION = "535.104.05"


def build_shim(folder: Path, *flags: str) -> Path:
    """Compile the library with gcc; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / LIBRARY
    command = ["gcc", "-shared", "-fPIC", "-O1", *flags, f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([*command, "-o", str(target), str(SOURCE)], check=True, timeout=60)
    return target


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd"


def mig_uuid(index: int, number: int) -> str:
    return f"MIG-0000000{index}-aaaa-bbbb-cccc-00000000000{number}"


def address(index: int) -> str:
    return f"0000:{index + 0x3B:02x}:00.0"


@dataclass
class Machine:
    """A node with NVIDIA's driver: what the shim says, sysfs, and the driver's files."""

    folder: Path
    gpus: int = 2
    product: str = A100
    memory_mib: int = 40960
    facts: list[tuple[object, ...]] = field(default_factory=list)
    """Further lines of the shim's file."""

    @property
    def shim_file(self) -> Path:
        return self.folder / "shim"

    @property
    def root(self) -> Path:
        """Of the driver."""
        return self.folder / "driver"

    @property
    def sysfs(self) -> Path:
        return self.folder / "sys"

    @property
    def environment(self) -> dict[str, str]:
        """Of a node-agent on the machine."""
        return {
            "DRAY_NVML_SHIM": str(self.shim_file),
            "DRAY_NODE__BOARD": "nvml",
            "DRAY_NODE__DRIVER_ROOT": str(self.root),
            "DRAY_NODE__SYSFS": str(self.sysfs),
        }

    def make(self, *flags: str) -> "Machine":
        """Write all files."""
        build_shim(self.root / "usr/lib/x86_64-linux-gnu", *flags)
        for index in range(self.gpus):
            device = self.sysfs / "bus/pci/devices" / address(index)
            device.mkdir(parents=True)
            for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("numa_node", "1")):
                (device / name).write_text(f"{text}\n")
        self.write()
        return self

    def install_driver(self, *, links: Sequence[str] = ("libcuda.so", "libcuda.so.1")) -> None:
        """The files of a driver besides its library of NVML."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        for name in ("libcuda.so", "libnvidia-ptxjitcompiler.so"):
            (libraries / f"{name}.{VERSION}").write_text("")
        for link in links:
            (libraries / link).symlink_to(f"libcuda.so.{VERSION}")
        (libraries / "libcuda.so.470.0").write_text("of another driver")
        for path in (
            "usr/bin/nvidia-smi",
            f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
            "run/nvidia-persistenced/socket",
        ):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text("")

    def say(self, *facts: tuple[object, ...]) -> None:
        """Add lines."""
        self.facts += facts
        self.write()

    def take_back(self, kind: str) -> None:
        """Remove the lines of a kind."""
        self.facts = [one for one in self.facts if one[0] != kind]
        self.write()

    def write(self) -> None:
        """Replace the shim's file at once."""
        lines: list[tuple[object, ...]] = [("driver", VERSION)]
        for index in range(self.gpus):
            bus_id = f"0000{address(index).upper()}"
            lines.append(("gpu", index, uuid(index), self.product, self.memory_mib, bus_id))
        text = "".join("\t".join(map(str, line)) + "\n" for line in [*lines, *self.facts])
        new = self.shim_file.with_suffix(".new")
        new.write_text(text, errors="surrogateescape")
        new.replace(self.shim_file)
