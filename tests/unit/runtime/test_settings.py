"""Settings: units, sources, and every wrong one named."""

import os
from pathlib import Path

import pytest

from dray.runtime.settings import ByteSize, CommaList, Duration, Settings, SettingsGroup, load
from dray.runtime.units import parse_bytes, parse_duration


class Web(SettingsGroup):
    wait: Duration = 3.0
    limit: ByteSize = 1024
    names: CommaList = ()
    api_token: int = 0


class Example(Settings):
    web: Web = Web()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("300ms", 0.3), ("2m", 120), ("1h30m", 5400), ("1.5s", 1.5), ("7d", 604_800)],
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["30", "s", "-1s", "1 s", "1y", "", 30, None, "1s2"])
def test_what_is_not_a_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="such as 30s"):
        parse_duration(text)


def test_a_size_has_a_unit() -> None:
    assert parse_bytes("64MiB") == 64 * 2**20
    assert parse_bytes("3kB") == 3000
    for text in ("64", "1.5MiB", "64mb", True):
        with pytest.raises(ValueError, match="such as 64MiB"):
            parse_bytes(text)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_NATS__URL", "nats://a:1")
    monkeypatch.setenv("DRAY_NATS__PASSWORD", "hidden")
    monkeypatch.setenv("DRAY_WEB__WAIT", "250ms")
    monkeypatch.setenv("DRAY_WEB__NAMES", "a, b,")
    monkeypatch.setenv("DRAY_INSTANCE", "i-1")
    settings = load(Example)
    assert settings.nats.url == "nats://a:1"
    assert settings.nats.password.get_secret_value() == "hidden"
    assert "hidden" not in repr(settings)
    assert settings.web.wait == 0.25
    assert settings.web.names == ("a", "b")
    assert settings.instance == "i-1"
    assert settings.namespace == "dray-system"


def test_a_file_is_read_below_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "dray.toml"
    path.write_text('[web]\nwait = "9s"\nlimit = "2KiB"\nnames = ["x"]\n[other]\na = 1\n')
    monkeypatch.setenv("DRAY_CONFIG", str(path))
    monkeypatch.setenv("DRAY_WEB__WAIT", "1s")
    settings = load(Example)
    assert (settings.web.wait, settings.web.limit, settings.web.names) == (1.0, 2048, ("x",))


def test_every_wrong_setting_is_named_with_what_was_seen_and_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAY_HEALTH__PORT", "99999")
    monkeypatch.setenv("DRAY_WEB__WAIT", "30")
    monkeypatch.setenv("DRAY_LOG__LEVEL", "loud")
    monkeypatch.setenv("DRAY_WEB__API_TOKEN", "letmein")
    with pytest.raises(SystemExit) as caught:
        load(Example)
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    text = "\n".join(lines)
    assert "DRAY_HEALTH__PORT is '99999'; input should be less than or equal to 65535" in text
    assert "DRAY_WEB__WAIT is '30'; expected a number with a unit" in text
    assert "DRAY_LOG__LEVEL is 'loud'" in text
    assert "DRAY_WEB__API_TOKEN is (hidden)" in text
    assert "letmein" not in text


def test_a_setting_that_must_be_given_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    class Node(SettingsGroup):
        name: str

    class Needy(Settings):
        node: Node

    with pytest.raises(SystemExit):
        load(Needy)
    assert "DRAY_NODE" in capsys.readouterr().err


def test_a_misspelt_setting_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAY_NATS__URI", "x")
    monkeypatch.setenv("DRAY_OTHER__THING", "of another service")
    load(Example)
    assert capsys.readouterr().err.splitlines() == [
        "dray: DRAY_NATS__URI is not a setting of this service; is it misspelt?"
    ]


def test_a_misspelt_key_of_the_file_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dray.toml"
    path.write_text('[web]\nwiat = "9s"\n[other]\na = 1\n')
    monkeypatch.setenv("DRAY_CONFIG", str(path))
    load(Example)
    assert capsys.readouterr().err.splitlines() == [
        f"dray: web.wiat in {path} is not a setting of this service; is it misspelt?"
    ]


def test_a_missing_file_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAY_CONFIG", "/nowhere/dray.toml")
    with pytest.raises(SystemExit):
        load(Example)
    assert "DRAY_CONFIG: there is no file '/nowhere/dray.toml'" in capsys.readouterr().err


def test_a_file_that_can_not_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dray.toml"
    path.write_text("[web\n")
    monkeypatch.setenv("DRAY_CONFIG", str(path))
    with pytest.raises(SystemExit):
        load(Example)
    assert str(path) in capsys.readouterr().err


def test_an_argument_comes_before_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"DRAY_WEB__WAIT": "1s", "DRAY_NATS__URL": "nats://a:1"})

    settings = load(Example, ["--web.wait=2s", "--web.names=a,b=c", "--instance=i-1"])

    assert settings.web == Web(wait="2s", names="a,b=c")  # type: ignore[arg-type]
    assert (settings.instance, settings.nats.url) == ("i-1", "nats://a:1")


@pytest.mark.parametrize(
    "argument",
    ["--verbose", "web.wait=2s", "--web.wait", "--web.pause=2s", "--web=2s", "--wait=1s"],
)
def test_an_argument_that_is_no_setting_stops_the_service(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load(Example, [argument])

    assert stopped.value.code == 2
    named = argument.partition("=")[0]
    assert f"the argument {named!r} is not a setting of this service" in capsys.readouterr().err


def test_a_wrong_argument_is_named_without_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(Example, ["--nats.pasword=hunter2"])

    shown = capsys.readouterr().err
    assert "--nats.pasword" in shown
    assert "hunter2" not in shown


def test_help_lists_every_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {"DRAY_NATS__PASSWORD": "hunter2"})

    with pytest.raises(SystemExit) as stopped:
        load(Example, ["--help"])

    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "\n  --nats.url=nats://127.0.0.1:4222\n" in shown
    assert "\n  --instance=...\n" in shown
    assert "\n  --web.wait=" in shown
    assert "hunter2" not in shown
