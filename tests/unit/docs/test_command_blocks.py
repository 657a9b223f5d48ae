"""Each command of the user guide is run by a test."""

import ast

import pytest
from tests.command_blocks import GUIDE_PAGES, NOT_RUN, ROOT, RUN_ELSEWHERE, commands_of

PAGES = {page.path for page in GUIDE_PAGES}
SHOWN = [command for path in PAGES for command in commands_of(path)]


def test_every_page_with_commands_is_run():
    found = {f"docs/user-guide/{one.name}" for one in (ROOT / "docs" / "user-guide").glob("*.md")}
    assert {path for path in found if commands_of(path)} <= PAGES


@pytest.mark.parametrize("beginning", [*RUN_ELSEWHERE, *NOT_RUN])
def test_what_the_guide_does_not_run_is_in_it(beginning: str):
    assert any(one.startswith(beginning) for one in SHOWN)


@pytest.mark.parametrize("beginning", RUN_ELSEWHERE)
def test_what_is_run_elsewhere_is_in_the_body_of_its_test(beginning: str):
    test, written = RUN_ELSEWHERE[beginning]
    assert written in source_of(test)


def source_of(test: str) -> str:
    """Of a function, ``path::name``, or of a whole file."""
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text("utf-8")
    if not name:
        return text
    (found,) = (one for one in ast.walk(ast.parse(text)) if getattr(one, "name", "") == name)
    return ast.get_source_segment(text, found) or ""
