"""dray's version from pyproject.toml, in the forms that other programs need."""

import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PRE_RELEASE = re.compile(r"(?<=\d)(a|b|rc)(\d+)$")
_NAMES = {"a": "alpha", "b": "beta", "rc": "rc"}


@cache
def python_version() -> str:
    """The version as in pyproject.toml, such as ``0.2.0rc1``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def version() -> str:
    """The same as a semantic version, for charts and images: ``0.2.0-rc.1``."""
    return _PRE_RELEASE.sub(lambda match: f"-{_NAMES[match[1]]}.{match[2]}", python_version())
