"""What people read fits a terminal of 80 columns, also if names are as long as they get."""

import re
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest
from tests.unit.cli.gpu_objects import claim, device, slice_of

from dray.messages.rpc import PodScores, ScoredNode
from dray_cli import gpus, status, top
from dray_cli.doctor.findings import Finding, lines
from dray_cli.explain import Explanation
from dray_cli.fleet import fleet_of
from dray_cli.gpu_inventory import gpus_of
from dray_cli.pod_life import PodLife
from dray_cli.scores import FoundScores
from dray_cli.tables import echo_table
from dray_cli.text import wrapped_on_terminal
from dray_sandbox.stack_file import ProcessRecord, StackFile, process_record

WIDTH = 80
LONG = "a-name-that-is-as-long-as-kubernetes-lets-the-name-of-a-node-be"
NODE = slice_of(LONG, device("a", "01", pool=LONG), device("b", "02", pool=LONG, taint="xid-79"))
CLAIM = claim(LONG, "a", node=LONG)


def show_gpus() -> None:
    rows = [gpus._row(gpu, is_wide=False) for gpu in gpus_of([NODE], [CLAIM])]
    echo_table(gpus._TITLES, rows)


def show_top() -> None:
    pool = {"metadata": {"name": LONG}, "spec": {}}
    pod = {
        "metadata": {
            "name": LONG,
            "namespace": LONG,
            "annotations": {"tensor-fusion.ai/gpupool": LONG},
        },
        "spec": {},
        "status": {"phase": "Pending"},
    }
    request = {
        "metadata": {"name": LONG, "namespace": LONG},
        "spec": {},
        "status": {"explanation": f"nearest: {LONG}/gpu-1 has 4Gi; {LONG} is not ready"},
    }
    top.echo_fleet(fleet_of(gpus_of([NODE], [CLAIM]), [pool], [pod], [request]))


def show_status() -> None:
    process = ProcessRecord(
        name=f"node-agent-{LONG}", pid=1, started="", health_url="http://127.0.0.1:31999/readyz"
    )
    stack = StackFile(
        name="a" * 40,
        directory="d",
        control_plane="sandbox",
        server="",
        kubeconfig="k",
        kubeconfigs={},
        nats_url="",
        nats_passwords={},
        supervisor=process_record("supervisor", 1),
        processes=(process,),
    )
    status._show(stack, ["not ready"])


def show_scores() -> None:
    nodes = (ScoredNode(LONG, 10**9, {"load": 0.5, "virtual_tflops": 0.25, "virtual_vram": 0.25}),)
    FoundScores(PodScores("the highest load first", nodes, 9), LONG, note="not kept " * 12).echo()


def show_explain() -> None:
    pod = {
        "metadata": {
            "name": LONG,
            "namespace": LONG,
            "annotations": {"tensor-fusion.ai/gpupool": LONG},
        },
        "spec": {},
    }
    request = {"status": {"explanation": f"not enough: 1 of 1 node; nearest: {LONG}/gpu-1 has 1"}}
    found = Explanation(pod, request, ({"metadata": {"name": LONG}},), life=PodLife(LONG))
    click.echo(wrapped_on_terminal("\n".join(found.lines())))


def show_doctor() -> None:
    finding = Finding("pools", f"pool {LONG}", "broken", f"node {LONG} is in none, see {LONG}")
    click.echo(wrapped_on_terminal("\n".join(lines([finding]))))


@pytest.mark.parametrize(
    "show", [show_gpus, show_top, show_status, show_scores, show_explain, show_doctor]
)
def test_long_names_fit_eighty_columns(
    show: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    show()

    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert printed
    assert {line for line in printed if len(line) > WIDTH and " " in line.strip()} == set()
