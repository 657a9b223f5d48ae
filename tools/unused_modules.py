"""Modules of the product that nothing of it uses: ``python -m tools.unused_modules``.

A module is used if a program reaches it: a script of ``pyproject.toml``, or a module that the
Makefile, the chart, an image or a compose file runs. A module reaches what it imports, and what its
texts name: ``python -m`` gets a module as a text, and a script is run by its file's name. Tests,
benchmarks and tools reach nothing; what only they use belongs there. An in-memory adapter is used
with its port: it stands where the real one does.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import grimp

from tools.sizes import ROOT, sources

_COMMANDS: Final = ("Makefile", "deploy")
_TEXT_FILES: Final = frozenset((".conf", ".py", ".sh", ".toml", ".tpl", ".yaml", ".yml", ""))
_RUN: Final = re.compile(r"\b-?m[\s\",]+([a-z_]+(?:\.\w+)*)")
_MAIN: Final = ".__main__"
_PORTS: Final = ".ports"
_IN_MEMORY: Final = ".memory"


def unused_modules(root: Path) -> list[str]:
    """The product's modules that no program of it reaches, sorted."""
    packages = sources(root)
    sys.path[:0] = map(str, packages.values())
    graph = grimp.build_graph(*sorted(packages), cache_dir=None)
    files = {name: _file(name, packages) for name in graph.modules}
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    return unreached(_programs(root), imports, files)


def unreached(
    programs: Iterable[str], imports: Mapping[str, set[str]], files: Mapping[str, Path]
) -> list[str]:
    """The modules that none of the programs reaches. An ``__init__`` is used with its modules."""
    by_file = {(name.rpartition(".")[0], path.name): name for name, path in files.items()}
    reached: set[str] = set()
    ahead = [name for program in programs for name in _run(program, files)]
    while ahead:
        name = ahead.pop()
        if name in reached:
            continue
        reached.add(name)
        ahead += imports[name]
        ahead += [name.rpartition(".")[0]] if "." in name else []
        if name.endswith(_PORTS):
            ahead += _run(name.removesuffix(_PORTS) + _IN_MEMORY, files)
        for text in _texts(files[name]):
            ahead += _run(text, files)
            if other := by_file.get((name.rpartition(".")[0], text)):
                ahead.append(other)
    return sorted(files.keys() - reached)


def _run(name: str, files: Mapping[str, Path]) -> list[str]:
    """What ``python -m name`` runs, and what an import of ``name`` reads."""
    return [one for one in (name, name + _MAIN) if one in files]


def _file(name: str, packages: Mapping[str, Path]) -> Path:
    path = packages[name.partition(".")[0]].joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _texts(path: Path) -> Iterator[str]:
    """The texts of a module, docstrings included: none of those is a module's name alone."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _programs(root: Path) -> Iterator[str]:
    scripts = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    yield from (target.partition(":")[0] for target in scripts.values())
    for name in _COMMANDS:
        path = root / name
        for file in (path, *path.rglob("*")) if path.is_dir() else (path,):
            if file.is_file() and file.suffix in _TEXT_FILES:
                yield from _RUN.findall(file.read_text("utf-8"))


def main() -> int:
    """Print each unused module; 1 if there is one."""
    found = unused_modules(ROOT)
    for name in found:
        print(
            f"{name}: no program of the product reaches it: delete it, or move it to tools/, "
            "benchmarks/ or tests/",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
