"""Each command of the user guide is run by a test."""

from tests.command_blocks import GUIDE_PAGES, ROOT, RUN_ELSEWHERE, commands_of

PAGES = {page.path for page in GUIDE_PAGES}
SHOWN = [command for path in PAGES for command in commands_of(path)]


def test_every_page_with_commands_is_run():
    found = {f"docs/user-guide/{one.name}" for one in (ROOT / "docs" / "user-guide").glob("*.md")}
    assert {path for path in found if commands_of(path)} <= PAGES


def test_what_is_run_elsewhere_is_in_the_guide_and_its_test_exists():
    for beginning, test in RUN_ELSEWHERE.items():
        assert any(one.startswith(beginning) for one in SHOWN), beginning
        assert (ROOT / test).is_file(), test
