"""``dray gpus``: names, fill, health and holders of GPUs."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.cli.gpu_objects import claim, device, slice_of

from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, SLICES, Listed, RefusedError, Resource
from dray_cli import gpus as module
from dray_cli.gpu_inventory import GpuState, gpus_of, percent
from dray_cli.gpu_names import GpuNames, names_in
from dray_cli.gpus import gpus, health_cell

UUID = "gpu-be008d03-aa40-5d64-8329-22122ec11e6b"
OTHER = "gpu-fd2656e9-dcb2-55ca-bbdb-fe4d03ae71b6"


def by_name(found: list[GpuState]) -> dict[str, GpuState]:
    return {gpu.name: gpu for gpu in found}


def test_gpus_are_numbered_by_their_pci_address() -> None:
    names = GpuNames([slice_of("n1", device("b", "0000:41:00.0"), device("a", "0000:c1:00.0"))])

    assert (names.of("n1", "b"), names.of("n1", "a")) == ("n1/gpu-0", "n1/gpu-1")


def test_without_addresses_they_are_numbered_by_name_after_the_others() -> None:
    names = GpuNames([slice_of("n1", device("b"), device("a"), device("c", "0000:41:00.0"))])

    assert [names.of("n1", one) for one in "cab"] == ["n1/gpu-0", "n1/gpu-1", "n1/gpu-2"]


def test_old_generations_and_other_drivers_count_for_nothing() -> None:
    slices = [
        slice_of("n1", device("gone"), generation=1),
        slice_of("n1", device("a"), generation=2),
        slice_of("n1", device("port"), generation=9, driver="other.example.com"),
    ]

    assert [gpu.name for gpu in gpus_of(slices, [])] == ["n1/gpu-0"]
    assert GpuNames(slices).of("n1", "gone") == "n1/gone"


def test_texts_are_shortened_where_the_gpu_is_known() -> None:
    names = GpuNames([slice_of("n1", device(OTHER, "0000:01"), device(UUID, "0000:02"))])

    assert names.shortened(f"nearest: n1/{UUID} has 89") == "nearest: n1/gpu-1 has 89"
    assert names.shortened(f"  {OTHER} on n1  vram=1") == "  n1/gpu-0  vram=1"
    assert names.shortened(f"{OTHER} on n2") == "n1/gpu-0 on n2"
    assert names.shortened(f"gpu=1-{OTHER}") == f"gpu=1-{OTHER}"
    assert GpuNames().shortened(f"n1/{UUID}") == f"n1/{UUID}"


def test_the_fill_is_that_of_the_fullest_capacity() -> None:
    claims = [claim("one", "a", vram="30Gi"), claim("two", "a", tflops="50", vram="2Gi")]

    gpu = gpus_of([slice_of("n1", device("a"))], claims)[0]

    assert gpu.fill == 0.8
    assert [str(gpu.budgets[name]) for name in ("tflops", "vram")] == ["75/100", "32Gi/40Gi"]
    assert [str(holder) for holder in gpu.holders] == ["team/one 75%", "team/two 50%"]


@pytest.mark.parametrize(
    ("held", "shown", "fill"),
    [
        (claim("p", "a", reserved=False), "team/p 25%", 0.25),
        (claim("p", "a", tflops=""), "team/p 100%", 1.0),
        (claim("p", "a", adminAccess=True, tflops=""), "team/p (looks on)", 0.0),
    ],
    ids=["not reserved yet", "a whole GPU", "admin access"],
)
def test_each_kind_of_holder_is_shown(held: dict[str, Any], shown: str, fill: float) -> None:
    gpu = gpus_of([slice_of("n1", device("a"))], [held])[0]

    assert ([str(one) for one in gpu.holders], gpu.fill) == ([shown], fill)


def test_a_claim_without_a_pod_is_named_itself() -> None:
    held = claim("p", "a", reserved=False)
    held["metadata"]["ownerReferences"] = []

    assert str(gpus_of([slice_of("n1", device("a"))], [held])[0].holders[0]) == (
        "team/(claim p-claim) 25%"
    )


def test_an_unhealthy_gpu_says_why() -> None:
    found = gpus_of(
        [slice_of("n1", device("a", taint="xid-79"), device("b", phase="Unknown"), device("c"))], []
    )

    assert [gpu.trouble for gpu in found] == ["xid-79", "phase Unknown", ""]


def test_nodes_with_many_gpus_are_sorted_by_number() -> None:
    devices = [device(f"d{number:02}", f"{number:02}") for number in range(12)]

    names = [gpu.name for gpu in gpus_of([slice_of("n1", *devices)], [])]

    assert names[2:4] + names[-1:] == ["n1/gpu-2", "n1/gpu-3", "n1/gpu-11"]


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0, "0%"), (0.001, "<1%"), (0.014, "1%"), (0.5, "50%"), (0.999, "99%"), (1, "100%")],
)
def test_a_percentage_hides_neither_a_small_share_nor_a_small_rest(
    fraction: float, text: str
) -> None:
    assert percent(fraction) == text


@pytest.mark.parametrize(
    ("text", "node", "read"),
    [
        (f"n0/{UUID}", "", [{"field_selector": "spec.nodeName=n0"}]),
        (f"GPU {UUID}: no daemon", "n0", [{"field_selector": "spec.nodeName=n0"}]),
        (f"GPU {UUID}: no daemon", "", [{}]),
        (" ".join(f"n{number}/{UUID}" for number in range(25)), "n0", [{}]),
    ],
)
async def test_names_are_read_for_the_nodes_of_a_text(
    text: str, node: str, read: list[dict[str, str]]
) -> None:
    kube = MemoryKube()
    for number in range(10):
        await kube.create(SLICES, slice_of(f"n{number}", device(UUID)))
    lists = []
    listed = kube.list

    async def counting(resource: Resource, *_: str, **selectors: str) -> Listed:
        lists.append(selectors)
        return await listed(resource, **selectors)

    kube.list = counting  # type: ignore[method-assign, assignment]

    names = await names_in(kube, text, node)

    assert lists == read
    assert names.of("n0", UUID) == "n0/gpu-0"


async def test_who_may_not_read_slices_sees_the_names_of_kubernetes() -> None:
    class Refusing(MemoryKube):
        async def list(self, *_: Any, **__: Any) -> Listed:
            raise RefusedError("forbidden", 403)

    assert (await names_in(Refusing(), UUID)).shortened(UUID) == UUID


@pytest.fixture
async def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = MemoryKube()
    await kube.create(SLICES, slice_of("n1", device("a"), device("b")))
    await kube.create(SLICES, slice_of("n2", device("c", pool="other")))
    held = claim("one", "a")
    stored = await kube.create(CLAIMS, held)
    await kube.update(CLAIMS, {**stored, "status": held["status"]}, subresource="status")

    async def connected(_: str | None) -> MemoryKube:
        return kube

    monkeypatch.setattr(module, "connect_kube", connected)


@pytest.mark.usefixtures("_cluster")
def test_the_table_is_plain_in_a_pipe() -> None:
    done = CliRunner().invoke(gpus, [])

    assert done.output.splitlines() == [
        "NAME      POOL     MODEL  HEALTH  FILL  HELD BY",
        "n1/gpu-0  my-pool  A100   ok      25%   team/one 25%",
        "n1/gpu-1  my-pool  A100   ok      0%    -",
        "n2/gpu-0  other    A100   ok      0%    -",
    ]


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--pool", "other"], ["n2/gpu-0"]),
        (["--node", "n1"], ["n1/gpu-0", "n1/gpu-1"]),
        (["--node", "n1", "--pool", "other"], []),
    ],
)
def test_pool_and_node_filter(flags: list[str], names: list[str]) -> None:
    done = CliRunner().invoke(gpus, [*flags, "-o", "json"])

    assert [gpu["name"] for gpu in json.loads(done.output)["gpus"]] == names


@pytest.mark.usefixtures("_cluster")
def test_the_wide_table_has_amounts_and_uuids() -> None:
    line = CliRunner().invoke(gpus, ["-o", "wide"]).output.splitlines()[1]

    assert line.split()[5:8] == ["25/100", "8Gi/40Gi", "A"]


@pytest.mark.usefixtures("_cluster")
def test_an_empty_answer_names_what_was_asked_for() -> None:
    done = CliRunner().invoke(gpus, ["--pool", "absent"])

    assert (done.stdout, done.stderr) == ("", "no GPU is published in pool 'absent'\n")


def test_a_gpu_with_foreign_processes_is_shown() -> None:
    (one, other) = gpus_of([slice_of("n1", device("a", used_by="processes"), device("b"))], [])

    assert health_cell(one).text == "used by processes"
    assert health_cell(other).text == "ok"
    assert (one.as_json()["usedBy"], one.as_json()["healthy"]) == ("processes", True)
