"""The size of the product, and its import cycles: ``python -m tools.sizes [--revision COMMIT]``.

Prints files and lines of Python, imports between the product's modules, and import cycles between
modules and between packages. If a package has subpackages, its modules count one by one.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import grimp

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("shared", "services", "cli", "sandbox")


def sources(root: Path) -> dict[str, Path]:
    """The packages of the product, with the folders that contain them."""
    found = (path.parent for folder in FOLDERS for path in root.glob(f"{folder}/**/__init__.py"))
    return {
        package.name: package.parent
        for package in found
        if not (package.parent / "__init__.py").exists()
    }


def packages_of(modules: Iterable[str]) -> dict[str, str]:
    """By module: its package, or the module itself if its package has subpackages."""
    known = set(modules)
    packages = {module.rpartition(".")[0] for module in known}
    outer = {package.rpartition(".")[0] for package in packages}

    def package_of(module: str) -> str:
        package = module.rpartition(".")[0]
        return module if package in outer or module in packages else package

    return {module: package_of(module) for module in known}


def cycles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """The largest sets of names that import each other, directly or indirectly."""
    reached = {name: _reached(name, imports) for name in imports}
    found: list[set[str]] = []
    for name, targets in reached.items():
        cycle = {other for other in targets if name in reached[other]}
        if cycle and cycle not in found:
            found.append(cycle)
    return found


def _reached(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for target in imports[ahead.pop()] - found:
            found.add(target)
            ahead.append(target)
    return found


def sizes(root: Path) -> dict[str, int]:
    """The figures of a checkout."""
    packages = sources(root)
    sys.path[:0] = map(str, packages.values())
    graph = grimp.build_graph(*sorted(packages), cache_dir=None)
    imports = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    package_of = packages_of(imports)
    between: dict[str, set[str]] = {package: set() for package in package_of.values()}
    for module, targets in imports.items():
        between[package_of[module]] |= {package_of[target] for target in targets}
    for package, targets in between.items():
        targets.discard(package)
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    return {
        "files": len(files),
        "lines": sum(len(path.read_text().splitlines()) for path in files),
        "imports": sum(map(len, imports.values())),
        "module_cycles": len(cycles(imports)),
        "package_cycles": len(cycles(between)),
    }


def sizes_at(revision: str) -> dict[str, int]:
    """The figures of a commit. Raises CalledProcessError: git does not have it."""
    command = ("git", "archive", "--format=tar", revision, *FOLDERS)
    packed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        return sizes(Path(folder))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--revision", help="a commit; by default the files of this checkout")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    args = parser.parse_args()
    found = sizes_at(args.revision) if args.revision else sizes(ROOT)
    if args.output == "json":
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):15} {value:7,}")


if __name__ == "__main__":
    main()
