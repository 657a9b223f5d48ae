"""Public functions and constants that only their own module uses are reported."""

from pathlib import Path

import pytest

from tools.names.private_names import public_problems

_LIMIT = "dray.limits.MOST is used by its own module only: name it _MOST"


def found(root: Path, **files: str) -> list[str]:
    """The problems of a product with ``dray.limits``, and these files."""
    texts = {"shared/dray/limits.py": "MOST = 3", "shared/dray/other.py": ""} | files
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(public_problems(root))


@pytest.mark.parametrize(
    "text",
    [
        "def limit(): ...",
        "async def limit(): ...",
        "@cache\ndef limit(): ...",
        "def limit():\n    return limit",
    ],
)
def test_a_function_that_nothing_else_uses_is_reported(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, **{"shared/dray/limits.py": text}) == [
        "dray.limits.limit is used by its own module only: name it _limit"
    ]


@pytest.mark.parametrize(
    "text", ["MOST = 1", "MOST: Final = 1", "MOST, _LEAST = 2, 1", "MOST = 1\n_LEAST = MOST"]
)
def test_a_constant_that_nothing_else_uses_is_reported(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, **{"shared/dray/limits.py": text}) == [_LIMIT]


@pytest.mark.parametrize(
    "text",
    [
        "class Limit: ...",
        "Limit = int | None",
        "_MOST = 1",
        "def main(): ...",
        "@click.command()\ndef limit(): ...",
    ],
)
def test_types_and_entry_points_are_left_out(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, **{"shared/dray/limits.py": text}) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("shared/dray/other.py", "from dray.limits import MOST"),
        ("shared/dray/other.py", "from .limits import MOST"),
        ("shared/dray/__init__.py", "from .limits import MOST"),
        ("shared/dray/other.py", "from dray import limits\nprint(limits.MOST)"),
        ("shared/dray/other.py", "from dray import limits as own\nprint(own.MOST)"),
        ("shared/dray/other.py", "import dray.limits\nprint(dray.limits.MOST)"),
        ("tests/test_limits.py", "from dray import limits\nset_it(limits, 'MOST', 2)"),
        ("tests/test_limits.py", "from dray import limits\nname = 'MOST'\nset_it(limits, name, 2)"),
        ("tests/test_limits.py", "patch('dray.limits.MOST')"),
        ("shared/dray/other.py", "VERBS = {'limits': ('dray.limits', 'MOST')}\nprint(_VERBS)"),
        ("pyproject.toml", "limits = 'dray.limits:MOST'"),
        ("docs/page.md", "The limit is `MOST`."),
    ],
)
def test_a_name_that_another_file_uses_is_public(tmp_path: Path, file: str, text: str) -> None:
    assert _LIMIT not in found(tmp_path, **{file: text})


@pytest.mark.parametrize(
    "text", ["MOST = 4", "from dray.more import MOST", "print('MOST')", "limits.MOST = 1"]
)
def test_an_equal_name_of_something_else_is_no_use(tmp_path: Path, text: str) -> None:
    assert _LIMIT in found(tmp_path, **{"shared/dray/other.py": text})
