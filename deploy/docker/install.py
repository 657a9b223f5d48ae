"""The build stages of deploy/docker/Dockerfile: what one service of dray needs, and nothing else.

    python3 install.py download WHEELS             locked packages of all services, by their hashes
    python3 install.py build WHEELS OWN            dray's own wheel
    python3 install.py packages SERVICE WHEELS FOLDER
    python3 install.py service SERVICE OWN FOLDER

Runs in a folder with pyproject.toml and requirements.lock. FOLDER becomes a virtual environment
without pip: the packages that the service's extra needs, the service's own modules, ``bin/service``
to start it, and ``sbom.cdx.json``. Only ``download`` needs a package index.
"""

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

SERVICES = {
    name: (f"dray_{name.replace('-', '_')}",)
    for name in ("webhook", "claim-controller", "allocator", "node-agent")
}
"""The modules of each, besides ``dray``."""
CLI = (*(module for (module,) in SERVICES.values()), "dray_cli", "dray_sandbox")
MODULES = {**SERVICES, "cli": CLI, "sandbox": CLI}
EXTRAS = ("cli", "sandbox")
"""They include those of all services."""


def main(command: str, *arguments: str) -> None:
    """Run one command."""
    commands = {"download": download, "build": build, "packages": packages, "service": service}
    commands[command](*arguments)


def download(wheels: str) -> None:
    """Fill WHEELS with all packages that any service needs, and what builds dray."""
    with tempfile.TemporaryDirectory() as work:
        pip = _environment(Path(work, "pip"), with_pip=True)
        needed = [*_project()["build-system"]["requires"], *requirements(*EXTRAS)]
        path = Path(work, "requirements.txt")
        path.write_text(locked(pip, needed, Path(work)))
        _pip(pip, "download", "--no-deps", "--require-hashes", "-d", wheels, "-r", str(path))


def build(wheels: str, own: str) -> None:
    """Build dray's wheel into OWN."""
    with tempfile.TemporaryDirectory() as work:
        pip = _environment(Path(work, "pip"), with_pip=True)
        offline = ("--no-index", "--find-links", wheels)
        _pip(pip, "install", *offline, *_project()["build-system"]["requires"])
        _pip(pip, "wheel", *offline, "--no-deps", "--no-build-isolation", "-w", own, ".")


def packages(service: str, wheels: str, folder: str) -> None:
    """Make FOLDER, with what the service needs of others."""
    with tempfile.TemporaryDirectory() as work:
        pip = _environment(Path(work, "pip"), with_pip=True)
        target = _environment(Path(folder), with_pip=False)
        offline = ("--no-index", "--find-links", wheels)
        path = Path(work, "requirements.txt")
        path.write_text(locked(pip, requirements(service), Path(work), *offline))
        into = ("--python", str(target), "install", *offline, "--no-deps")
        # The CLI has the packages of several services: without bytecode they are small enough.
        compiled = ("--no-compile",) if service == "cli" else ()
        _pip(pip, *into, *compiled, "--require-hashes", "-r", str(path))


def service(name: str, own: str, folder: str) -> None:
    """Add dray's own part to FOLDER, and remove what the service does not need."""
    with tempfile.TemporaryDirectory() as work:
        pip = _environment(Path(work, "pip"), with_pip=True)
        target = Path(folder, "bin", "python")
        wheels = ("--no-index", "--find-links", own)
        _pip(pip, "--python", str(target), "install", *wheels, "--no-deps", "dray")
    _prune(name, Path(folder))
    Path(folder, "sbom.cdx.json").write_text(json.dumps(sbom(name, Path(folder)), indent=1))


def requirements(*extras: str) -> list[str]:
    """What dray requires with these extras; an extra may name others."""
    project = _project()["project"]
    found, left, seen = list(project["dependencies"]), list(extras), set()
    while left:
        extra = left.pop()
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            if same := re.fullmatch(rf"{project['name']}\[(.+)\]", line):
                left += set(same[1].split(",")) - seen
            else:
                found.append(line)
    return found


def locked(pip: Path, needed: list[str], work: Path, *options: str) -> str:
    """The lock's lines, hashes included, for ``needed`` and all that they need here."""
    lock = read_lock(Path("requirements.lock").read_text())
    versions, report = work / "versions.txt", work / "report.json"
    versions.write_text("\n".join(re.sub(r" \\\n.*", "", text) for text in lock.values()))
    dry = ("install", "--dry-run", "--ignore-installed", "--report", str(report))
    _pip(pip, *dry, *options, "--constraint", str(versions), *needed)
    found = json.loads(report.read_text())["install"]
    names = sorted({normal(item["metadata"]["name"]) for item in found})
    if missing := [name for name in names if name not in lock]:
        sys.exit(f"requirements.lock lacks {', '.join(missing)}: make it again (CONTRIBUTING.md)")
    return "\n".join(lock[name] for name in names)


def read_lock(text: str) -> dict[str, str]:
    """The entries of each package by its name; several where versions depend on the platform."""
    entries: dict[str, list[str]] = {}
    for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE):
        if "==" in entry:
            entries.setdefault(normal(entry.split("==")[0]), []).append(entry.rstrip())
    return {name: "\n".join(each) for name, each in entries.items()}


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sbom(service: str, folder: Path) -> dict[str, Any]:
    """The software of the image in CycloneDX's form: Python packages, and Debian's of the base."""
    (packages,) = folder.glob("lib/python*/site-packages")
    found = importlib.metadata.distributions(path=[str(packages)])
    python = sorted((normal(one.metadata["Name"]), one.version) for one in found)
    versions = dict(python)
    name = _project()["project"]["name"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "name": f"{name}-{service}",
                "version": versions[name],
            }
        },
        "components": [
            *(_component("pypi", name, version) for name, version in python),
            *(_component("deb/debian", name, version) for name, version in _debian()),
        ],
    }


def _component(kind: str, name: str, version: str) -> dict[str, str]:
    purl = f"pkg:{kind}/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _debian() -> list[tuple[str, str]]:
    status = Path("/var/lib/dpkg/status")
    entries = status.read_text().split("\n\n") if status.exists() else []
    fields = [dict(re.findall(r"^([A-Za-z]+): (.*)$", one, re.MULTILINE)) for one in entries]
    return [(one["Package"], one["Version"]) for one in fields if "Version" in one]


def _project() -> dict[str, Any]:
    return tomllib.loads(Path("pyproject.toml").read_text())


def _environment(folder: Path, *, with_pip: bool) -> Path:
    """The Python of a new environment."""
    venv.create(folder, with_pip=with_pip, symlinks=True)
    return folder / "bin" / "python"


def _pip(python: Path, *arguments: str) -> None:
    quiet = {"PIP_QUIET": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_CACHE_DIR": "1"}
    quiet |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([python, "-m", "pip", *arguments], env=os.environ | quiet, check=True)


def _prune(service: str, folder: Path) -> None:
    """Remove other services' modules, all commands but the service's, and what serves to build
    and test programs with numpy."""
    (packages,) = folder.glob("lib/python*/site-packages")
    others = {module for modules in MODULES.values() for module in modules} - {*MODULES[service]}
    numpys = (packages.glob(f"numpy/{name}") for name in ("**/tests", "distutils", "**/include"))
    for unused in (*map(packages.joinpath, others), *itertools.chain(*numpys)):
        shutil.rmtree(unused)
    command = "dray" if service in EXTRAS else f"dray-{service}"
    for script in (folder / "bin").iterdir():
        if script.is_dir():
            shutil.rmtree(script)
        elif script.name != command and not script.name.startswith("python"):
            script.unlink()
    (folder / "bin" / "service").symlink_to(command)


if __name__ == "__main__":
    main(*sys.argv[1:])
