"""``dray up`` without a choice takes the control plane that is there, and builds none."""

import pytest

from dray_cli.__main__ import main
from dray_sandbox.layout import StackOptions


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[StackOptions]:
    """The stacks that were to be started, instead of them."""
    stacks: list[StackOptions] = []

    def start(options: StackOptions, *_rest: object, **_flags: object) -> None:
        stacks.append(options)

    monkeypatch.setattr("dray_cli.up._start", start)
    monkeypatch.setattr("dray_cli.up.kept_control_plane", {"was-sandbox": "sandbox"}.get)
    return stacks


def up(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", *arguments])
    assert not ended.value.code


@pytest.mark.parametrize(
    ("built", "arguments", "expected"),
    [
        (True, (), "real"),
        (False, (), "sandbox"),
        (True, ("--control-plane", "sandbox"), "sandbox"),
        (False, ("--control-plane", "real"), "real"),
        (True, ("--keep", "--stack", "was-sandbox"), "sandbox"),
        (True, ("--keep", "--stack", "is-new"), "real"),
    ],
)
def test_the_real_control_plane_is_taken_if_it_has_been_built(
    monkeypatch: pytest.MonkeyPatch,
    started: list[StackOptions],
    built: bool,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.setattr("dray_cli.up.find_built", lambda: object() if built else None)

    up(*arguments)

    assert [one.control_plane for one in started] == [expected]


def test_the_sandbox_says_how_to_get_the_real_one(
    monkeypatch: pytest.MonkeyPatch,
    started: list[StackOptions],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dray_cli.up.find_built", lambda: None)

    up()

    printed = capsys.readouterr()
    assert "`dray up --control-plane real` builds it once" in printed.out + printed.err
