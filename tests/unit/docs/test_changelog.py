"""The changelog: one short line per change, the newest release first."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "CHANGELOG.md").read_text("utf-8")
CHARACTERS = 160
_RELEASE = re.compile(r"^## (?:Unreleased|(\d+)\.(\d+)\.(\d+)(?: .*)?)$", re.MULTILINE)


def test_every_change_is_one_line_of_at_most_160_characters() -> None:
    _, _, changes = PAGE.partition("\n## ")
    lines = [line for line in changes.splitlines()[1:] if line and not line.startswith("#")]

    assert lines
    assert [line for line in lines if not line.startswith("- ")] == []
    assert [line for line in lines if len(line) > CHARACTERS] == []


def test_the_newest_release_is_first() -> None:
    releases = [found.groups() for found in _RELEASE.finditer(PAGE)]
    numbers = [tuple(map(int, found)) for found in releases if found[0]]

    assert len(releases) == len(re.findall(r"^## ", PAGE, re.MULTILINE))
    assert numbers == sorted(numbers, reverse=True)
    assert (None, None, None) not in releases[1:]
