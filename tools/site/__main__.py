"""``python -m tools.site``: build the documentation into ``dist/site`` (``make docs``).

The pages are those of the repository, at the same places: links between them, to examples and to
other files are the same in both. They are copied into a folder of the cache first, because mkdocs
needs a folder that has nothing else in it. Any warning fails the build, such as a wrong link or
anchor, or a missing page of the navigation.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / ".cache" / "dray" / "site"
"""The same folder as in mkdocs.yml."""
_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_FOLDERS = ("docs", "examples", "services")
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def main() -> int:
    """The exit code of mkdocs."""
    parser = argparse.ArgumentParser(prog="python -m tools.site")
    parser.add_argument("--serve", action="store_true", help="show it on this machine instead")
    command = ["serve"] if parser.parse_args().serve else ["build", "--strict", "--quiet"]
    copy_pages(ROOT, SOURCE)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *command], cwd=ROOT, env=environment
    ).returncode


def copy_pages(root: Path, source: Path) -> None:
    """Copy every page, and every file that a page links to, into an empty folder."""
    shutil.rmtree(source, ignore_errors=True)
    for page in pages(root):
        for path in (page, *linked(page, root)):
            target = source / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def pages(root: Path) -> Iterator[Path]:
    """The pages of the site."""
    yield from (root / name for name in _PAGES)
    for folder in _FOLDERS:
        yield from sorted((root / folder).rglob("*.md"))


def linked(page: Path, root: Path) -> Iterator[Path]:
    """The repository's files that a page links to, and that are not pages themselves."""
    for match in _LINK.finditer(page.read_text("utf-8")):
        path = (page.parent / match[1]).resolve()
        if path.is_file() and path.suffix != ".md" and path.is_relative_to(root):
            yield path


if __name__ == "__main__":
    sys.exit(main())
