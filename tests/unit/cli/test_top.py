"""``dray top``: pools, nodes, holders, and why pods wait, from the objects of Kubernetes."""

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.cli.gpu_objects import claim, device, slice_of

from dray.kube.memory import MemoryKube
from dray.kube.ports import SLICES, KubeUnavailableError
from dray_cli import top as module
from dray_cli.fleet import GpuFleet, Order, fleet_of, wait_reasons
from dray_cli.gpu_inventory import gpus_of
from dray_cli.top import Shown, headline, sections, top

SLICES_OF_TWO = [
    slice_of("n1", device("a", "01"), device("b", "02", taint="xid-79")),
    slice_of("n2", device("c", pool="other")),
]
POOLS = [
    {
        "metadata": {"name": "my-pool"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
    {"metadata": {"name": "other"}, "spec": {"owner": "kube-scheduler"}},
]


def pod(name: str, pool: str = "my-pool", **spec: Any) -> dict[str, Any]:
    annotations = {"tensor-fusion.ai/gpupool": pool} if pool else {}
    metadata = {"name": name, "namespace": "team", "annotations": annotations}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def request(name: str, explanation: str = "", node: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"selectedNode": node},
        "status": {"explanation": explanation},
    }


def fleet(**about: Any) -> GpuFleet:
    claims = [claim("one", "a"), claim("two", "a", "c", node="n1"), claim("two", "c", node="n2")]
    pending = [pod("p1"), pod("p2")]
    requests = [request("p1", "not enough free virtual_vram (50Gi asked): 2 of 2 devices")]
    return fleet_of(gpus_of(SLICES_OF_TWO, claims), POOLS, pending, requests, **about)


def rows(found: GpuFleet, section: int) -> list[list[str]]:
    return [
        [cell if isinstance(cell, str) else cell.text for cell in row]
        for row in sections(found)[section][1]
    ]


def test_the_headline_sums_up() -> None:
    assert headline(fleet()) == (
        "2 nodes, 3 GPUs (1 unhealthy), 25% full, 2 pods on them, 2 pods wait"
    )


def test_pools_show_their_unhealthy_gpus_and_who_waits() -> None:
    assert rows(fleet(), 0) == [
        ["my-pool", "dray", "2", "1", "25%", "2", "True"],
        ["other", "kube-scheduler", "1", "0", "25%", "0", "?"],
    ]


def test_a_node_shows_one_sign_per_gpu() -> None:
    assert rows(fleet(), 1) == [
        ["n1", "my-pool", "A100", "25%", "2", "▄✗"],
        ["n2", "other", "A100", "25%", "1", "▂"],
    ]


def test_a_pod_on_several_nodes_is_one_line() -> None:
    assert rows(fleet(), 2) == [
        ["team/one", "n1/gpu-0", "25%"],
        ["team/two", "n1/gpu-0 n2/gpu-0", "25%"],
    ]


@pytest.mark.parametrize(
    ("order", "nodes"),
    [
        ("name", ["n1", "n2"]),
        ("fill", ["n2", "n1"]),
        ("free", ["n1", "n2"]),
        ("pods", ["n2", "n1"]),
    ],
)
def test_nodes_are_sorted_as_asked(order: Order, nodes: list[str]) -> None:
    claims = [claim("one", "a"), *(claim(name, "c", node="n2") for name in ("two", "three"))]
    found = fleet_of(gpus_of(SLICES_OF_TWO, claims), [], [], [], order=order)

    assert [node.name for node in found.nodes] == nodes


def test_a_fleet_can_be_that_of_a_pool_or_a_node() -> None:
    of_pool, of_node = fleet(pool="my-pool"), fleet(node="n2")

    assert [pool.name for pool in of_pool.pools] == ["my-pool"]
    assert of_pool.waiting == 2
    assert of_node.waiting == 0


def test_reasons_that_differ_in_amounts_alone_fall_together() -> None:
    pending = [pod(f"p{number}") for number in range(3)]
    requests = [
        request("p0", "not enough free virtual_vram (50Gi asked): 2 of 2 devices; nearest: n1/a"),
        request(
            "p1", "not enough free virtual_vram (60Gi asked): 1 of 2 devices\ncordoned: 1 of 1 node"
        ),
        request("p2", "cordoned: 2 of 2 nodes"),
    ]

    found = wait_reasons(pending, requests)

    assert [(one.text, one.pods) for one in found] == [
        ("cordoned", ("team/p1", "team/p2")),
        ("not enough free virtual_vram", ("team/p0", "team/p1")),
    ]


def test_placed_pods_and_pods_without_a_pool_do_not_wait() -> None:
    pending = [pod("bound", nodeName="n1"), pod("binding"), pod("plain", pool="")]

    assert wait_reasons(pending, [request("binding", node="n1")]) == ()


def test_a_pod_without_a_decision_says_so() -> None:
    assert [one.text for one in wait_reasons([pod("p")], [])] == ["no decision yet"]


def test_in_a_pipe_it_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connected(_: str | None) -> MemoryKube:
        kube = MemoryKube()
        await kube.create(SLICES, SLICES_OF_TWO[1])
        return kube

    monkeypatch.setattr(module, "connect_kube", connected)

    assert CliRunner().invoke(top, []).output.splitlines() == [
        "1 node, 1 GPU, 0% full, 0 pods on them, 0 pods wait",
        "",
        "NODE  POOL   MODEL  FILL  PODS  GPUS",
        "n2    other  A100   0%    0     ·",
    ]
    found = json.loads(CliRunner().invoke(top, ["-o", "json"]).output)
    assert [node["name"] for node in found["nodes"]] == ["n2"]
    assert (found["pools"], found["waiting"]) == ([], [])


async def test_live_it_goes_on_while_the_server_is_away_and_ends_by_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([KubeUnavailableError("no answer"), fleet(), fleet()])
    read_all = asyncio.Event()

    async def read(*_: Any, **__: Any) -> GpuFleet:
        answer = next(answers, None)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            read_all.set()
            await asyncio.Future()
        return answer or fleet()

    monkeypatch.setattr(module, "read_fleet", read)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    live = asyncio.create_task(
        module._live(MemoryKube(), None, fleet(), Shown("", "", "name"), 0.0)
    )
    await asyncio.wait_for(read_all.wait(), 60)
    live.cancel()

    await live  # It ends without an error.

    shown = capsys.readouterr().out
    assert "not current: no answer" in shown
    assert "3 GPUs (1 unhealthy)" in shown
