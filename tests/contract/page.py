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

Each line is a test, and its name. A fake and the thing it stands for pass the same tests, so what
is true on the one is true on the other; a line that fails on a new version of NATS or Kubernetes
says what breaks before a cluster does. Tests marked `real` need the real control plane and run in
`make test-real`.

This page is written from the tests (`make generate`), and `make check` compares it.
"""

CHAPTERS: Final = {
    "bus": """\
## The bus

Held by the bus in memory and by nats-server alike, unless a section says otherwise. Everything
that keeps a device from being sold twice stands here: the fence of the decision logs, ids that
are stored once, streams that say when they were lost.
""",
    "kube": """\
## Kubernetes, as the services use it

Held by Kubernetes in memory (the virtual-time harness runs on it), by the sandbox's API server and
by the real one, through the door that the services use.
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


def tests_of(module: ast.Module) -> Iterator[str]:
    """The names of a module's tests, in the order of the file."""
    functions = (n for n in module.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return (function.name for function in functions if function.name.startswith("test_"))


def section(path: Path) -> str:
    """The lines of one module of tests, under its docstring's first sentence."""
    module = ast.parse(path.read_text("utf-8"))
    title = (ast.get_docstring(module) or path.stem).split("\n", 1)[0].rstrip(".")
    link = f"[`{path.relative_to(ROOT)}`](../{path.relative_to(ROOT)})"
    lines = "".join(f"- {sentence(name)}\n" for name in tests_of(module))
    return f"### {title}\n\n{link}\n\n{lines}"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for folder, introduction in CHAPTERS.items():
        parts.append(introduction)
        parts.extend(section(path) for path in sorted((HERE / folder).glob("test_*.py")))
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
