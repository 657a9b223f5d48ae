"""``--usage`` of ``dray gpus`` and ``dray top``: what node-agents put on the bus."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.cli.gpu_objects import device, slice_of

from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS
from dray.kube.memory import MemoryKube
from dray.kube.ports import SLICES
from dray.messages.base import Outgoing, encode
from dray.messages.usage import GpusUsed, UsedGpu
from dray_cli import gpu_usage, gpus, top
from dray_cli.tables import Cell

BUSY = UsedGpu(
    uuid="A",
    memory_used_bytes=12 * 2**30,
    gpu_percent=90,
    temperature_c=71,
    power_w=301.6,
    xid=79,
    ecc_corrected=2,
)
QUIET = UsedGpu(uuid="B", memory_used_bytes=0, gpu_percent=10, temperature_c=35, power_w=70.0)


@pytest.fixture
async def bus(monkeypatch: pytest.MonkeyPatch) -> MemoryBus:
    """Of a cluster with a node of three GPUs; the use of two is known."""
    kube, bus = MemoryKube(), MemoryBus()
    await kube.create(SLICES, slice_of("n1", device("a"), device("b"), device("c")))

    async def connected(_: str | None) -> MemoryKube:
        return kube

    @asynccontextmanager
    async def opened(*_: Any, **__: Any) -> AsyncIterator[MemoryBus]:
        yield bus

    monkeypatch.setattr(gpus, "connect_kube", connected)
    monkeypatch.setattr(top, "connect_kube", connected)
    monkeypatch.setattr(gpu_usage, "open_bus", opened)
    return bus


def texts(used: UsedGpu | None) -> list[str]:
    cells = gpu_usage.usage_cells(used)
    return [cell.text if isinstance(cell, Cell) else cell for cell in cells]


async def report(bus: MemoryBus) -> None:
    for stream in STREAMS:
        await bus.ensure(stream)
    for at_s, used in enumerate([(BUSY,), (BUSY, QUIET)]):
        now = GpusUsed(node="n1", now_unix_s=float(at_s), gpus=used)
        await bus.publish(encode(now, source="test"))


async def test_a_gpu_has_columns_of_its_use(bus: MemoryBus) -> None:
    await report(bus)
    found, usage = await gpus._read(None, "", "", with_usage=True)
    assert [texts(usage.get((one.node, one.uuid))) for one in found] == [
        ["90%", "12.0Gi", "71°C", "302W", "xid 79, 2 corrected"],
        ["10%", "0.0Gi", "35°C", "70W", "none"],
        ["-", "-", "-", "-", "-"],
    ]
    assert gpu_usage.usage_as_json(usage["n1", "A"])["usage"]["xid"] == 79
    assert gpu_usage.usage_as_json(None) == {}


async def test_a_node_has_the_mean_the_hottest_and_the_sums(bus: MemoryBus) -> None:
    await report(bus)
    fleet = await top.Shown("", "", "name").read(MemoryKube(), bus)
    assert fleet.usage == {("n1", "A"): BUSY, ("n1", "B"): QUIET}
    node = gpu_usage.sum_of([BUSY, QUIET])
    assert texts(node) == [
        *("50%", "12.0Gi", "71°C", "372W", "xid 79, 2 corrected"),
    ]
    assert gpu_usage.sum_of([]) is None


@pytest.mark.usefixtures("bus")
def test_without_reports_the_columns_say_so() -> None:
    lines = CliRunner().invoke(gpus.gpus, ["--usage"]).output.splitlines()
    assert lines[0].split() == [
        *("NAME", "POOL", "MODEL", "HEALTH", "FILL"),
        *("BUSY", "MEMORY", "TEMP", "POWER", "ERRORS", "HELD", "BY"),
    ]
    assert lines[1].split()[5:] == ["-"] * 6
    shown = json.loads(CliRunner().invoke(gpus.gpus, ["--usage", "-o", "json"]).output)
    assert "usage" not in shown["gpus"][0]
    assert "BUSY" in CliRunner().invoke(top.top, ["--usage"]).output


async def test_an_agent_speaks_for_the_gpus_of_its_own_node_alone(bus: MemoryBus) -> None:
    await report(bus)
    for body, subject in (("n2", "n2"), ("n1", "n2")):
        message = GpusUsed(node=subject, now_unix_s=9.0, gpus=(UsedGpu(uuid="A", gpu_percent=1),))
        forged = encode(message, source="the agent of n2")
        payload = forged.payload.replace(b'"node":"n2"', b'"node":"%b"' % body.encode())
        await bus.publish(Outgoing(forged.subject, payload, {}))
    _, usage = await gpus._read(None, "", "", with_usage=True)
    assert usage["n1", "A"] == BUSY


@pytest.mark.parametrize(
    "odd",
    [
        *('"memory_used_bytes":18446744073709551615', '"memory_used_bytes":1' + "0" * 400),
        *('"power_w":1e308', '"temperature_c":-1', '"gpu_percent":1' + "0" * 400),
        *('"xid":-1', '"ecc_uncorrected":18446744073709551615'),
    ],
    ids=lambda odd: odd[:24],
)
async def test_an_odd_value_of_a_driver_or_of_a_forged_agent_counts_as_unknown(
    bus: MemoryBus, odd: str
) -> None:
    await report(bus)
    message = encode(GpusUsed(node="n1", now_unix_s=9.0, gpus=(QUIET,)), source="test")
    payload = message.payload.replace(
        b'"gpus":[', b'"gpus":[{"uuid":"C","memory_percent":3,%b},' % odd.encode()
    )
    await bus.publish(Outgoing(message.subject, payload, {}))
    _, usage = await gpus._read(None, "", "", with_usage=True)
    assert usage["n1", "C"] == UsedGpu(uuid="C", memory_percent=3)
    assert texts(usage["n1", "B"])[0] == "10%"
