"""The page of contracts, written from the contract tests: their names are its lines.

python tests/contract/page.py            writes docs/contracts.md
python tests/contract/page.py --check    exit code 1 where the page is not what it would write
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PAGE: Final = ROOT / "docs" / "contracts.md"
ACRONYMS: Final = {"nats": "NATS", "uid": "UID", "json": "JSON", "dray": "dray"}

INTRODUCTION: Final = """\
# What dray relies on

Each line is a test, and its name; below it stand its cases. A fake and the thing it stands for
pass the same tests, so what is true on the one is true on the other; a line that fails on a new
version of NATS or Kubernetes says what breaks before a cluster does. Tests marked `real` need the
real control plane and run in `make conformance`.

This page is written from the tests (`make generate`), and `make check` compares it.
"""

CHAPTERS: Final = {
    "bus": """\
## The bus

Held by the bus in memory and by nats-server alike, unless a section says otherwise. Everything
that keeps a device from being allocated twice is here: the fence of the decision logs, ids that
are stored once, streams that say when they were lost.
""",
    "kube": """\
## Kubernetes, as the services use it

Held by Kubernetes in memory (the virtual-time harness runs on it), by the sandbox's API server and
by the real one, through the adapter that the services use.
""",
    "kubernetes": """\
## Kubernetes, as it answers

Held by the sandbox's API server and by the real kube-apiserver, request by request. The executor's
order of writes, the gate and the derived templates rest on these.
""",
    "golden": """\
## Messages between versions

Replicas of two versions work side by side during a rolling update.
""",
}


def sentence(name: str) -> str:
    """The behaviour that a test's name states, as a sentence."""
    words = [ACRONYMS.get(word, word) for word in name.removeprefix("test_").split("_")]
    return f"{words[0][0].upper()}{words[0][1:]} {' '.join(words[1:])}."


def tests_of(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The names of a module's tests in the order of the file, each with the names of its cases."""
    tables = dict(_tables(module))
    for found in module.body:
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(found):
            yield found.name, [case for name in _parameters(found) for case in tables.get(name, [])]


def _is_test(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.name.startswith("test_")


def _tables(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The module's dictionaries by name, each with its keys where these are all texts."""
    for found in module.body:
        match found:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys))
            ):
                texts = [key.value for key in keys if isinstance(key, ast.Constant)]
                if len(texts) == len(keys):
                    yield name, [str(text) for text in texts]


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The names of what the test is parametrized with."""
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, ast.Name(id=name)]):
                yield name


def lines(name: str, cases: list[str]) -> str:
    """A test's line, and one below it for each of its cases."""
    return f"- {sentence(name)}\n" + "".join(f"  - {case}\n" for case in cases)


def section(path: Path) -> str:
    """The lines of one module of tests, under its docstring's first sentence."""
    module = ast.parse(path.read_text("utf-8"))
    title = (ast.get_docstring(module) or path.stem).split("\n", 1)[0].rstrip(".")
    link = f"[`{path.relative_to(ROOT)}`](../{path.relative_to(ROOT)})"
    reported = "".join(lines(name, cases) for name, cases in tests_of(module))
    return f"### {title}\n\n{link}\n\n{reported}"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for folder, introduction in CHAPTERS.items():
        parts.append(introduction)
        parts.extend(section(path) for path in sorted((HERE / folder).rglob("test_*.py")))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/contracts.md from the contract tests.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    wanted = page()
    if not parser.parse_args().check:
        PAGE.write_text(wanted, "utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text("utf-8") == wanted:
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not what the tests say; run `make generate`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
