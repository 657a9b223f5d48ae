"""Earlier releases: the chart, packed, and the commit whose images belong to it.

``python -m tools.release pack`` makes the folder of a release.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.packaging.helm.installation import ROOT

from dray_sandbox.paths import user_cache

FOLDER = Path(__file__).parents[1] / "releases"


@dataclass(frozen=True, slots=True)
class Release:
    """One of ``tests/packaging/releases``."""

    version: str

    @property
    def chart(self) -> Path:
        """The packed chart."""
        (found,) = (FOLDER / self.version).glob("*.tgz")
        return found

    @property
    def commit(self) -> str:
        """Of the images' source."""
        return (FOLDER / self.version / "commit").read_text().strip()

    def images(self) -> Path:
        """The archive of its images, built from its commit once for each user."""
        archive = user_cache() / "images" / f"{self.commit}.tar"
        if archive.exists():
            return archive
        source = user_cache() / "images" / "source"
        _git("worktree", "prune")
        if source.exists():
            _git("worktree", "remove", "--force", str(source))
        _git("worktree", "add", "--force", "--detach", str(source), self.commit)
        try:
            command = [sys.executable, "-m", "tools.images", "--base", "debian", "--services"]
            command += [
                "webhook,claim-controller,allocator,node-agent,cli",
                "--output",
                str(archive),
            ]
            subprocess.run(command, cwd=source, check=True)
        finally:
            _git("worktree", "remove", "--force", str(source))
        return archive


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True)
