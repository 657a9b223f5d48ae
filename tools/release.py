"""``python -m tools.release``: build all parts of a release in ``dist`` (``make release``).

python -m tools.release            wheel, sdist, images, chart, SBOMs, checksums
python -m tools.release pack       keep the chart and the commit for tests of later upgrades
"""

import asyncio
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from dray.api.errors import DrayError
from tools.helm import build_helm
from tools.version import ROOT, python_version, version

DIST = ROOT / "dist"
CHART = ROOT / "deploy" / "helm" / "dray"
RELEASES = ROOT / "tests" / "packaging" / "releases"
CHECKSUMS = "SHA256SUMS"


def main() -> int:
    """Exit code 0: done; 1: something failed; prints what."""
    try:
        if sys.argv[1:] == ["pack"]:
            _pack()
        else:
            _release(sys.argv[1:])
    except (DrayError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _release(options: list[str]) -> None:
    """``options`` are those of ``tools.images``."""
    for old in (*DIST.glob("dray-*"), DIST / CHECKSUMS):
        old.unlink(missing_ok=True)
    _run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST))
    _package_chart(DIST)
    _run(sys.executable, "-m", "tools.images", *options)
    files = [*sorted(DIST.glob("dray-*")), DIST / "images.tar", *sorted((DIST / "sbom").glob("*"))]
    lines = [f"{_digest(path)}  {path.relative_to(DIST)}" for path in files]
    (DIST / CHECKSUMS).write_text("\n".join([*lines, ""]))
    print("\n".join(str(path.relative_to(ROOT)) for path in (*files, DIST / CHECKSUMS)))


def _pack() -> None:
    """Works only in a clean checkout: the images are built from the commit later."""
    changed = _output("git", "status", "--porcelain")
    if changed:
        raise OSError(f"commit first, there are changes:\n{changed}")
    folder = RELEASES / version()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _package_chart(folder)
    (folder / "commit").write_text(_output("git", "rev-parse", "HEAD") + "\n")
    print(f"{folder.relative_to(ROOT)} has {python_version()}")


def _package_chart(folder: Path) -> None:
    helm = asyncio.run(build_helm(print))
    _run(str(helm), "package", str(CHART), "--destination", str(folder))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
