"""Generated files: committed as they would be written, and every difference is reported."""

from pathlib import Path

import pytest

from tools.generate.__main__ import OUTPUTS, ROOT, main
from tools.generate.output import Output


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.folder)
def test_the_committed_files_are_what_the_code_says(output: Output) -> None:
    assert output.differences(ROOT) == []


def test_every_difference_is_reported(tmp_path: Path) -> None:
    output = Output("docs", lambda: {"a.json": "{}", "b.json": "{}"}, owned="*.json")
    output.write(tmp_path)
    assert output.differences(tmp_path) == []
    (tmp_path / "docs" / "a.json").unlink()
    (tmp_path / "docs" / "b.json").write_text("[]")
    (tmp_path / "docs" / "stray.json").write_text("{}")
    (tmp_path / "docs" / "stray.md").write_text("")

    assert output.differences(tmp_path) == [
        "docs/a.json is missing",
        "docs/stray.json is not generated any more",
        "docs/b.json is out of date",
    ]


def test_writing_removes_what_is_not_generated_any_more_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "stray.json").write_text("{}")
    (tmp_path / "docs" / "page.md").write_text("")

    Output("docs", lambda: {"a.json": "{}"}, owned="*.json").write(tmp_path)

    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["a.json", "page.md"]


def test_a_folder_without_owned_files_reports_no_strays(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text("")

    assert Output(".", dict).differences(tmp_path) == []


def test_the_command_writes_all_files_and_checks_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert "deploy/helm/dray/crds/gpupools.yaml is missing\n" in errors
    assert errors.endswith("run make generate, and look at the change\n")
    assert not list(tmp_path.iterdir())

    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / "docs" / "messages.md").write_text("# Messages\n", "utf-8")
    assert main(["--check", "--root", str(tmp_path)]) == 1
