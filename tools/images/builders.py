"""Image builders: docker, buildah or podman, whichever works on this machine."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from tools.images.archive import merge

PROGRAMS = ("docker", "podman", "buildah")
"""The builders, in the order in which they are tried."""
PART_OF = "app.kubernetes.io/part-of=dray"
"""The label of all images that are built here, including the stages of a build."""


class BuilderError(PermanentError):
    """There is no builder, or it failed."""


@dataclass(frozen=True, slots=True)
class Builder:
    """One of PROGRAMS."""

    program: str

    def build(
        self, name: str, dockerfile: Path, context: Path, arguments: Mapping[str, str]
    ) -> None:
        """Build an image. Raises BuilderError."""
        values = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        # buildah forgets the layers of earlier builds otherwise; the others keep them.
        layers = ["--layers"] if self.program == "buildah" else []
        self._run("build", *layers, *values, "-t", name, "-f", str(dockerfile), str(context))

    def has(self, name: str) -> bool:
        """Whether an image of that name is on this machine."""
        command = [self.program, "inspect", "--type=image", name]
        return subprocess.run(command, capture_output=True).returncode == 0

    def save(self, names: Sequence[str], archive: Path) -> None:
        """Write the images into one archive, each layer once. Raises BuilderError."""
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.unlink(missing_ok=True)
        if self.program == "buildah":
            with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
                parts = [Path(folder, f"{number}.tar") for number, _ in enumerate(names)]
                for name, part in zip(names, parts, strict=True):
                    self._run("push", "--quiet", name, f"docker-archive:{part}:{name}")
                merge(parts, archive)
            return
        several = ["--multi-image-archive"] if self.program == "podman" else []
        self._run("save", *several, "-o", str(archive), *names)

    def prune(self) -> None:
        """Remove unnamed dray images that earlier builds left behind. Layers that the next build
        can use stay for a day, unless each is a copy of the whole file system (vfs)."""
        unnamed = ("--filter", "dangling=true", "--filter", f"label={PART_OF}")
        kept = () if self._copies_layers() else ("--filter", "until=24h")
        while unused := self._output("images", "--quiet", *unnamed, *kept).split():
            # An image can be removed only after images built on it, so there may be several rounds.
            removed = subprocess.run([self.program, "rmi", *unused], capture_output=True)
            if removed.returncode != 0 and not removed.stdout:
                break

    def _copies_layers(self) -> bool:
        return "vfs" in self._output("info").split()

    def _output(self, *arguments: str) -> str:
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        return done.stdout

    def _run(self, *arguments: str) -> None:
        # Builds need no isolation from the checkout to which they belong, and chroot works without
        # a runtime, cgroups and user namespaces.
        environment = {"BUILDAH_ISOLATION": "chroot"} | os.environ
        ended = subprocess.run([self.program, *arguments], env=environment)
        if ended.returncode != 0:
            command = " ".join([self.program, *arguments])
            raise BuilderError(f"{command} ended with exit code {ended.returncode}")


def find_builder(wanted: str = "") -> Builder:
    """The builder of that name, else the first that works here. Raises BuilderError."""
    for program in [wanted] if wanted else PROGRAMS:
        if shutil.which(program) and _works(program):
            return Builder(program)
    names = wanted or ", ".join(PROGRAMS)
    raise BuilderError(
        f"images can't be built: none of {names} works here; install one (Debian: `apt-get install "
        "buildah`), or start Docker's daemon"
    )


def _works(program: str) -> bool:
    """Whether it answers: docker is useless without its daemon."""
    return subprocess.run([program, "info"], capture_output=True).returncode == 0
