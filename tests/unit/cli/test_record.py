"""``dray record`` does not overwrite what was recorded before."""

from pathlib import Path
from typing import Any

import pytest

from dray.recording.recorder import Counts
from dray.runtime import logs
from dray_cli.__main__ import main

OLD = '{"line":"header"}\n'


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that recordings were begun in."""
    files: list[Path] = []

    async def record(file: Path, *_rest: Any) -> tuple[Counts, None]:
        files.append(file)
        return Counts(begun=True), None

    monkeypatch.setattr("dray_cli.record._record", record)
    monkeypatch.setattr(logs, "configure", lambda *_, **__: None)
    return files


def run(file: Path, *arguments: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["record", str(file), "--nats", "nats://127.0.0.1:1", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_file_that_exists_is_kept(
    tmp_path: Path, recorded: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text(OLD)

    assert run(file) == 1
    assert recorded == []
    assert capsys.readouterr().err == (
        f"dray: {file} exists, and would be lost: name another file, or overwrite it with --force\n"
    )


def test_by_force_it_is_overwritten(tmp_path: Path, recorded: list[Path]) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text(OLD)

    assert run(file, "--force") == 0
    assert recorded == [file]


def test_a_new_file_and_an_empty_one_need_no_force(tmp_path: Path, recorded: list[Path]) -> None:
    files = [tmp_path / "new.jsonl", tmp_path / "empty.jsonl"]
    files[1].touch()

    assert [run(file) for file in files] == [0, 0]
    assert recorded == files


def test_a_recording_without_inputs_says_what_publishes_them(
    tmp_path: Path, recorded: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "new.jsonl") == 0

    printed = capsys.readouterr()
    assert "0 inputs" in printed.out
    assert "DRAY_RECORD=true" in printed.err
    assert "dray up --record" in printed.err
