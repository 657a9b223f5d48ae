"""`make release`: what it writes into dist, and that all of it is one version."""

import hashlib
import json
import subprocess
import sys
import tarfile
import zipfile

import pytest
import yaml

from tools.images.__main__ import SERVICES
from tools.release import CHECKSUMS, DIST
from tools.version import ROOT, python_version, version

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def checksums() -> dict[str, str]:
    """Digests by file, of a release with the images that are there."""
    command = [sys.executable, "-m", "tools.release", "--base", "debian", "--keep"]
    subprocess.run(command, cwd=ROOT, check=True)
    lines = (DIST / CHECKSUMS).read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_it_has_everything_with_its_checksum(checksums):
    assert checksums.keys() == {
        f"dray-{python_version()}-py3-none-any.whl",
        f"dray-{python_version()}.tar.gz",
        f"dray-{version()}.tgz",
        "images.tar",
        *(f"sbom/dray-{service}.cdx.json" for service in (*SERVICES, "sandbox")),
    }
    for name, digest in checksums.items():
        with (DIST / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest, name


def test_wheel_and_chart_are_of_one_version(checksums):
    with tarfile.open(DIST / f"dray-{version()}.tgz") as archive:
        file = archive.extractfile("dray/Chart.yaml")
        assert file is not None
        chart = yaml.safe_load(file)
    with zipfile.ZipFile(DIST / f"dray-{python_version()}-py3-none-any.whl") as wheel:
        names = wheel.namelist()
        metadata = wheel.read(f"dray-{python_version()}.dist-info/METADATA").decode()

    assert chart["version"] == chart["appVersion"] == version()
    assert f"\nVersion: {python_version()}\n" in metadata
    assert {"dray/__init__.py", "dray_cli/__main__.py", "dray_allocator/app.py"} < set(names)
    assert not any(name.startswith(("tests/", "tools/")) for name in names)


def test_an_sbom_names_components_with_versions(checksums):
    for service in SERVICES:
        sbom = json.loads((DIST / "sbom" / f"dray-{service}.cdx.json").read_text())
        named = {one["name"]: one["version"] for one in sbom["components"]}
        assert named["nats-py"], service
