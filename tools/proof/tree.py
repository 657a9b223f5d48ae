"""The checkout that is proved, as git identifies it."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError


class NoCheckoutError(PermanentError):
    """Git can't identify the files."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The content of the working tree, including uncommitted changes."""

    hash: str
    """Hash of the content of all files that git does not ignore."""
    commit: str
    is_committed: bool
    """Whether the commit has exactly these files."""


def read_tree(root: Path) -> Tree:
    """The tree of the checkout at ``root``. Git's index does not change.

    Raises:
        NoCheckoutError: it is not a checkout, or git is missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _git(root, "read-tree", "HEAD", environment=index)
        _git(root, "add", "--all", environment=index)
        tree = _git(root, "write-tree", environment=index)
    commit = _git(root, "rev-parse", "HEAD")
    return Tree(tree, commit, tree == _git(root, "rev-parse", "HEAD^{tree}"))


def _git(root: Path, *words: str, environment: dict[str, str] | None = None) -> str:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(
            command,
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise NoCheckoutError("there is no git on PATH: install it") from error
    if done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise NoCheckoutError(f"{' '.join(command)}: {reason}; run it in a clone of the repository")
    return done.stdout.strip()
