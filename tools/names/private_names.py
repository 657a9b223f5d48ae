"""The rule for functions and constants that only their own module uses: they begin with ``_``.

Another file uses such a name if it

- imports it, or reads it as an attribute of the imported module;
- has ``module.name`` or ``module:name`` in a string;
- imports the module and has the name as a string, for a monkeypatch;
- has the module and the name as strings in one call or tuple;
- is a page that has the name in backticks.

Classes and types are part of a module's interface even if nothing names them. They are exempt, and
so are ``main`` and functions that a decorator registers, such as Click commands.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.names.rules import modules_of

_USERS: Final = (
    "benchmarks",
    "cli",
    "deploy",
    "docs",
    "sandbox",
    "services",
    "shared",
    "tests",
    "tools",
)
_PAGES: Final = frozenset((".md", ".toml", ".yaml", ".yml", ".tpl", ".conf", ".sh", ""))
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*[.:]\w+")
_BACKTICKS: Final = re.compile(r"`([^`\n]+)`")
_CONSTANT: Final = re.compile(r"[A-Z][A-Z0-9_]+")
_TOOLS: Final = "tools"
_ENTRIES: Final = frozenset(("main",))
_WRAPPERS: Final = frozenset(("asynccontextmanager", "cache", "contextmanager", "lru_cache"))
"""Decorators that register nothing."""

Names = defaultdict[str, set[str]]
"""Names by module."""


def public_problems(root: Path) -> Iterator[str]:
    """A line for each public name of the product that only its own module uses."""
    every = modules_of(root)
    modules = {name: path for name, path in every if name.partition(".")[0] != _TOOLS}
    for module, name in public_names_of_one_module(root, modules):
        yield f"{module}.{name} is used by its own module only: name it _{name}"


def public_names_of_one_module(
    root: Path, modules: Mapping[str, Path]
) -> Iterator[tuple[str, str]]:
    """Modules, each with a public function or constant that no other file uses."""
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules.items()}
    used, on_pages = _uses(root, modules, trees)
    for module, tree in trees.items():
        for name in _definitions(tree):
            is_public = not name.startswith("_") and name not in _ENTRIES
            if is_public and name not in used[module] and name not in on_pages:
                yield module, name


def _definitions(tree: ast.Module) -> Iterator[str]:
    """The functions and constants at the top of a module, without registered functions."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if all(_is_wrapper(one) for one in node.decorator_list):
                    yield name
            case ast.Assign(targets=targets):
                yield from filter(_CONSTANT.fullmatch, _targets(targets))
            case ast.AnnAssign(target=target):
                yield from filter(_CONSTANT.fullmatch, _targets([target]))


def _targets(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, ast.Tuple):
            yield from _targets(target.elts)


def _is_wrapper(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id in _WRAPPERS


def _uses(
    root: Path, modules: Mapping[str, Path], trees: Mapping[str, ast.Module]
) -> tuple[Names, set[str]]:
    """By module, the names that other files use; and the names in backticks on pages."""
    used: Names = defaultdict(set)
    on_pages: set[str] = set()
    own = {path: name for name, path in modules.items()}
    for path in _files(root):
        if path.suffix != ".py":
            text = path.read_text("utf-8")
            _note_texts(text, used)
            on_pages |= {
                word for code in _BACKTICKS.findall(text) for word in re.findall(r"\w+", code)
            }
        else:
            name = own.get(path, "")
            tree = trees[name] if name else ast.parse(path.read_text("utf-8"))
            _note_module(tree, name, path, used)
    return used, on_pages


def _files(root: Path) -> Iterator[Path]:
    yield from (path for path in root.iterdir() if path.is_file() and path.suffix in _PAGES)
    for folder in _USERS:
        for path in (root / folder).rglob("*"):
            if path.is_file() and (path.suffix == ".py" or path.suffix in _PAGES):
                yield path


def _note_texts(text: str, used: Names) -> None:
    for found in _DOTTED.findall(text):
        module, _, name = found.replace(":", ".").rpartition(".")
        used[module].add(name)


def _note_module(tree: ast.Module, module: str, path: Path, used: Names) -> None:
    nodes = list(ast.walk(tree))
    known = dict(_imported(nodes, module, path))
    for node in nodes:
        match node:
            case ast.ImportFrom():
                source = _source(node, module, path)
                used[source] |= {one.name for one in node.names}
            case ast.Attribute(attr=attr):
                if target := _dotted(node.value, known):
                    used[target].add(attr)
            case ast.Constant(value=str() as text):
                _note_texts(text, used)
            case ast.Call(args=parts) | ast.Tuple(elts=parts):
                texts = set(_texts(parts))
                for text in texts:
                    used[text] |= texts
    texts = set(_texts(nodes))
    for target in known.values():
        used[target] |= texts


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _imported(nodes: Iterable[ast.AST], module: str, path: Path) -> Iterator[tuple[str, str]]:
    """The names that may stand for modules, with what they stand for."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            source = _source(node, module, path)
            yield from ((one.asname or one.name, f"{source}.{one.name}") for one in node.names)
        elif isinstance(node, ast.Import):
            for one in node.names:
                root = one.name.partition(".")[0]
                yield (one.asname, one.name) if one.asname else (root, root)


def _source(node: ast.ImportFrom, module: str, path: Path) -> str:
    """The module from which the statement imports."""
    if not node.level:
        return node.module or ""
    package = module.split(".")
    package = package[: len(package) - node.level + (path.name == "__init__.py")]
    return ".".join([*package, *([node.module] if node.module else [])])


def _dotted(node: ast.expr, known: Mapping[str, str]) -> str:
    """The dotted name of what an expression reads, if it begins with an imported name; or ""."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value, known)):
        return f"{base}.{node.attr}"
    return ""
