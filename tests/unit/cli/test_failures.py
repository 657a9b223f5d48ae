"""What verbs say when they fail names what was given, and what to do."""

import importlib
from pathlib import Path
from typing import NoReturn

import pytest

from dray_cli.__main__ import main


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the program writes on standard error when it fails."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("verb", [["convert"], ["cel", "eval", "true"], ["cel", "check", "true"]])
def test_a_file_that_is_not_yaml_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("a: [")

    text = output(capsys, *verb, "-f", str(file))

    assert text.startswith(f"dray: {file}: ")
    assert "not YAML" in text


def test_an_api_server_that_is_away_ends_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    file = tmp_path / "mine.kubeconfig"
    file.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{unused_tcp_port}'}}}}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}"
    )

    text = output(capsys, "explain", "pod/train", "--kubeconfig", str(file))

    assert "no answer from the API server" in text
    assert text.endswith("start it with `dray up --detach`, and export the line that it prints\n")


def interrupted(*_: object) -> NoReturn:
    """As Ctrl-C does where nobody listens to signals yet."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("started_by", "arguments"),
    [
        ("dray_sandbox.supervisor.run_until_signal", []),
        ("dray_cli.up.start_detached", ["--detach"]),
    ],
)
def test_a_stack_that_is_interrupted_early_says_the_same_as_later(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started_by: str,
    arguments: list[str],
) -> None:
    monkeypatch.setattr(started_by, interrupted)

    text = output(capsys, "up", "--control-plane", "sandbox", *arguments)

    assert text == "dray: interrupted before the stack was ready\n"


def test_a_verb_that_is_interrupted_while_it_is_read_says_that_nothing_began(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib, "import_module", interrupted)

    assert output(capsys, "up") == "dray: interrupted before `dray up` began\n"
