"""``python -m tools.images``: build the images with docker, podman or buildah (``make images``).

Writes them into one archive, ``dist/images.tar``, which ``docker load``, ``podman load`` and
``ctr images import`` take, and the SBOM of each into ``dist/sbom``.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from dray.api.errors import DrayError
from tools.images.archive import read_archive
from tools.images.builders import PROGRAMS, Builder, find_builder
from tools.images.debian import build_base, build_nats, nats_version
from tools.version import version

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "dist" / "images.tar"
SBOM = "/opt/dray/sbom.cdx.json"
REVISION = "org.opencontainers.image.revision"
TITLE = "org.opencontainers.image.title"
SERVICES = ("webhook", "claim-controller", "allocator", "node-agent", "cli")
LOCAL = "sandbox"
"""The local API server of deploy/compose; not part of an installation."""
DEBIAN = "debian"
"""A base image that is made here from Debian packages."""
REGISTRY = "docker.io/library"
"""The registry in the full name of an image that names none."""


def image_name(service: str, registry: str = REGISTRY) -> str:
    """Such as ``docker.io/library/dray-webhook:0.2.0``."""
    return f"{registry}/dray-{service}:{version()}"


def nats_name() -> str:
    """The image that the chart names for NATS, in the version of this environment's server."""
    return f"{REGISTRY}/nats:{nats_version()}"


def main() -> int:
    """Build the images. Exit code 0: done; 1: failed."""
    options = _options()
    if options.keep and _is_of_this_commit(options.output):
        print(f"{options.output} was made from this commit")
        return 0
    try:
        builder = find_builder(options.builder)
        names = _build(builder, options.base, options.registry, options.services.split(","))
        written = options.output.with_suffix(".new")
        builder.save(names, written)
        written.replace(options.output)
        _write_sboms(options.output, options.output.with_name("sbom"))
        builder.prune()
    except DrayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(names))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__)
    parser.add_argument("--base", default="", help=f"image to build on; {DEBIAN!r}: make one here")
    parser.add_argument("--builder", default="", choices=("", *PROGRAMS), help="default: any")
    parser.add_argument("--registry", default=REGISTRY, help="prefix of the images' names")
    parser.add_argument("--services", default=",".join((*SERVICES, LOCAL)))
    parser.add_argument("--output", type=Path, default=ARCHIVE)
    parser.add_argument(
        "--keep", action="store_true", help="keep an archive that was made from this commit"
    )
    return parser.parse_args()


def _is_of_this_commit(archive: Path) -> bool:
    """Whether all images are from the commit, and nothing has changed since."""
    command = ["git", "-C", str(ROOT), "status", "--porcelain"]
    changed = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if changed or not archive.exists():
        return False
    labels = [image.configuration.get("Labels") or {} for image in read_archive(archive).values()]
    revisions = {each[REVISION] for each in labels if REVISION in each}
    return revisions == {_revision()}


def _build(builder: Builder, base: str, registry: str, services: list[str]) -> list[str]:
    arguments = {"VERSION": version(), "REVISION": _revision()}
    if index := os.environ.get("PIP_INDEX_URL"):
        arguments["PIP_INDEX_URL"] = index
    if base:
        arguments["BASE"] = build_base(builder) if base == DEBIAN else base
    dockerfile = ROOT / "deploy" / "docker" / "Dockerfile"
    names = [image_name(service, registry) for service in services]
    for service, name in zip(services, names, strict=True):
        builder.build(name, dockerfile, ROOT, arguments | {"SERVICE": service})
    if base == DEBIAN:
        names.append(nats_name())
        build_nats(builder, names[-1])
    return names


def _revision() -> str:
    """The commit of this checkout; ``unknown`` outside of Git."""
    answer = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    return answer.stdout.strip() if answer.returncode == 0 else "unknown"


def _write_sboms(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for image in read_archive(archive).values():
        if (title := image.configuration.get("Labels", {}).get(TITLE)) is not None:
            (folder / f"{title}.cdx.json").write_bytes(image.read(SBOM))


if __name__ == "__main__":
    sys.exit(main())
