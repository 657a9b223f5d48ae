"""Modules of the product that no part of it uses: ``python -m tools.unused_modules``.

A module is used if a program reaches it: a script of ``pyproject.toml``, or a module that the
Makefile, the chart, an image or a compose file runs. A module reaches the modules that it imports
or names in a string: ``python -m`` gets a module as a string, and a script is run by its file's
name. Tests, benchmarks and tools do not count; modules that only they use belong to them. An
in-memory adapter is used if its port is, because it replaces the real adapter.
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
    """The modules that no program reaches. An ``__init__`` is used if one of its modules is."""
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
    """The modules that ``python -m name`` runs or that an import of ``name`` reads."""
    return [one for one in (name, name + _MAIN) if one in files]


def _file(name: str, packages: Mapping[str, Path]) -> Path:
    path = packages[name.partition(".")[0]].joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _texts(path: Path) -> Iterator[str]:
    """The strings of a module. This includes docstrings, but none is just a module's name."""
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
