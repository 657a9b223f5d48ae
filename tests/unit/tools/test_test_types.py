"""``make check`` finds names that do not exist in tests, also in those that run elsewhere."""

from pathlib import Path

import pytest

from tools.test_types.__main__ import CODES, Roots, errors_in, relevant

CODE = """
from pathlib import Path

from dray.api.names import NO_SUCH_NAME
from dray.no_such_module import anything

def no_such_types(path):
    {line}
"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Path().no_such_attribute", "attr-defined"),
        ("Path().exists(no_such_argument=1)", "call-arg"),
        ("no_such_variable", "name-defined"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error(tmp_path: Path, line: str, code: str) -> None:
    file = tmp_path / "test_names.py"
    file.write_text(CODE.format(line=line), "utf-8")

    found = errors_in(Roots((str(file),)))

    assert [one.rpartition("[")[2].rstrip("]") for one in found] == [
        "attr-defined",
        "import-not-found",
        code,
    ]


def test_other_errors_of_types_do_not_count() -> None:
    output = "\n".join(f"tests/a.py:1: error: text  [{code}]" for code in (*CODES, "arg-type"))

    assert len(relevant(output)) == len(CODES)


def test_files_that_can_not_be_checked_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="no_such_file"):
        errors_in(Roots(("no_such_file.py",)))
