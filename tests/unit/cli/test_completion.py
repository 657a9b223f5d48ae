"""Shells complete verbs without importing them, and names from the cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from dray.kube.memory import MemoryKube
from dray.kube.ports import NODES, POD_GROUPS, PODS, POOLS, KubeUnavailableError
from dray_cli import cluster_names
from dray_cli.__main__ import VERBS, cli, kubectl, kubectl_complete

Completed = Callable[..., list[str]]


def completed(*arguments: str) -> list[str]:
    """What a shell offers for the last of the arguments."""
    *before, incomplete = arguments
    found = ShellComplete(cli, {}, "dray", "_DRAY_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in found]


@pytest.fixture
async def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = MemoryKube()
    for namespace, name in (("default", "train"), ("default", "test"), ("team", "other")):
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await kube.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace)
    await kube.create(POOLS, {"metadata": {"name": "fast"}, "spec": {}})
    await kube.create(POD_GROUPS, {"metadata": {"name": "gang"}, "spec": {}}, "default")
    await kube.create(NODES, {"metadata": {"name": "node-1"}})

    async def connected(_: str | None) -> MemoryKube:
        return kube

    monkeypatch.setattr(cluster_names, "connect_kube", connected)


def test_verbs_and_options_are_completed() -> None:
    assert completed("tr") == ["trace"]
    assert completed("") == list(VERBS)
    assert completed("gpus", "--po") == ["--pool"]


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("explain", ""), ["pod/test", "pod/train", "podgroup/gang"]),
        (("explain", "po"), ["pod/test", "pod/train", "podgroup/gang"]),
        (("explain", "podgroup/"), ["podgroup/gang"]),
        (("explain", "pg/x"), []),
        (("explain", "pod/tr"), ["pod/train"]),
        (("trace", "tr"), ["pod/train"]),
        (("trace", "-n", "team", "pods/"), ["pods/other"]),
        (("explain", "node/"), []),
        (("gpus", "--pool", ""), ["fast"]),
        (("top", "--node", "node"), ["node-1"]),
        (("top", "--node", "x"), []),
    ],
)
def test_names_are_those_of_the_cluster(arguments: tuple[str, ...], names: list[str]) -> None:
    assert completed(*arguments) == names


def test_a_cluster_that_is_away_has_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: str | None) -> MemoryKube:
        raise KubeUnavailableError("away")

    monkeypatch.setattr(cluster_names, "connect_kube", away)

    assert completed("gpus", "--pool", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_calls_dray(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])

    assert done.exit_code == 0
    assert f"_DRAY_COMPLETE={shell}_complete" in done.output


def test_kubectl_gets_a_value_per_line_and_a_directive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl_complete-dray", "ex"])
    kubectl_complete()

    assert capsys.readouterr().out.splitlines() == [f"explain\t{VERBS['explain'][2]}", ":4"]


def test_the_plugin_talks_to_kubectls_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("current-context: absent")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setattr("sys.argv", ["kubectl-dray", "gpus"])

    with pytest.raises(SystemExit) as ended:
        kubectl()

    assert ended.value.code == 1
    assert f"can't use {tmp_path}/.kube/config" in capsys.readouterr().err
