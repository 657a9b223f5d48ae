"""``dray up``: the control plane without a choice, and the processes of many nodes."""

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


@pytest.mark.parametrize(("nodes", "in_one"), [(24, False), (25, True), (2000, True)])
def test_one_process_runs_the_agents_of_many_nodes(
    started: list[StackOptions], nodes: int, in_one: bool
) -> None:
    """A process per node takes 60 MB each: a few hundred fill a laptop's memory."""
    up("--nodes", str(nodes), "--control-plane", "sandbox")

    assert [(len(one.nodes), one.agents_in_one) for one in started] == [(nodes, in_one)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--nodes", "2001"), "2001 is not in the range 0<=x<=2000"),
        (("--nodes", "25", "--kubelet", "real"), "--nodes 25: at most 24 with --kubelet real"),
    ],
)
def test_more_nodes_than_a_machine_can_run_are_refused(
    started: list[StackOptions],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", *arguments])

    assert ended.value.code == 2
    assert expected in " ".join(capsys.readouterr().err.split())
    assert not started
