"""``dray top``: nodes with their GPUs, pools and waiting pods, live on a terminal."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

import click

from dray.bus.ports import Bus, BusUnavailableError
from dray.kube.ports import Kube, KubeUnavailableError
from dray_cli.cluster_names import node_option, pool_option
from dray_cli.fleet import GpuFleet, NodeGpus, Order, holders_of, mean_fill, read_fleet
from dray_cli.gpu_inventory import GpuState, percent
from dray_cli.gpu_usage import TITLES, read_usage, sum_of, usage_bus, usage_cells, usage_option
from dray_cli.output import output_option, print_json
from dray_cli.tables import Cell, Row, fill_cell, is_terminal, plain_lines, rich_table
from dray_cli.target import connect_kube, kubeconfig_option
from dray_cli.text import counted

if TYPE_CHECKING:
    from rich.console import Group

_BLOCKS = "·▁▂▃▄▅▆▇█"
_UNHEALTHY = "✗"
_EXAMPLES = 3
_POOL_TITLES = ("POOL", "OWNER", "GPUS", "UNHEALTHY", "FILL", "WAITING", "READY")
_NODE_TITLES = ("NODE", "POOL", "MODEL", "FILL", "PODS", "GPUS")
_HOLDER_TITLES = ("POD", "GPUS", "SHARES")
_REASON_TITLES = ("PODS", "POOL", "REASON")
Section = tuple[Sequence[str], Sequence[Row]]


@click.command()
@pool_option
@node_option
@click.option(
    "--sort",
    "order",
    type=click.Choice(get_args(Order)),
    default="name",
    show_default=True,
    help="Order of the nodes: the fullest, the freest or those with the most pods first.",
)
@click.option("--once", is_flag=True, help="Print once and end, as in a pipe.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two updates.",
)
@usage_option
@kubeconfig_option
@output_option
def top(
    pool: str,
    node: str,
    order: Order,
    once: bool,
    interval_s: float,
    with_usage: bool,
    kubeconfig: str | None,
    output: str,
) -> None:
    """Watch pools, nodes with their GPUs, who holds them, and why pods wait.

    One character per GPU shows how full it is; ✗ is an unhealthy one. Ctrl-C ends it.
    """
    live = output == "text" and not once and is_terminal()
    shown = Shown(pool, node, order)
    asyncio.run(_top(kubeconfig, shown, output, interval_s if live else None, with_usage))


@dataclass(frozen=True, slots=True)
class Shown:
    """Which nodes are shown, and in which order."""

    pool: str
    node: str
    order: Order

    async def read(self, kube: Kube, bus: Bus | None) -> GpuFleet:
        """The nodes now, with the use of their GPUs if there is a bus."""
        fleet = await read_fleet(kube, pool=self.pool, node=self.node, order=self.order)
        return fleet if bus is None else replace(fleet, usage=await read_usage(bus))


async def _top(
    kubeconfig: str | None, shown: Shown, output: str, interval_s: float | None, with_usage: bool
) -> None:
    kube: Kube = await connect_kube(kubeconfig)
    try:
        async with usage_bus(kubeconfig, with_usage=with_usage) as bus:
            fleet = await shown.read(kube, bus)
            if output == "json":
                print_json(fleet.as_json())
            elif interval_s is None:
                echo_fleet(fleet)
            else:
                await _live(kube, bus, fleet, shown, interval_s)
    finally:
        await kube.close()


async def _live(
    kube: Kube, bus: Bus | None, fleet: GpuFleet, shown: Shown, interval_s: float
) -> None:
    """Update the display until Ctrl-C; try again if the API server or the bus does not answer."""
    from rich.console import Console
    from rich.live import Live

    with Live(_shown(fleet), console=Console(highlight=False), screen=True) as live:
        try:
            while True:
                await asyncio.sleep(interval_s)
                trouble = ""
                try:
                    fleet = await shown.read(kube, bus)
                except (KubeUnavailableError, BusUnavailableError) as error:
                    trouble = f"not current: {error}"
                live.update(_shown(fleet, trouble), refresh=True)
        except asyncio.CancelledError:
            return


def echo_fleet(fleet: GpuFleet) -> None:
    """Print it once: with colour on a terminal, else as plain text."""
    if is_terminal():
        from rich.console import Console

        Console(highlight=False).print(_shown(fleet))
        return
    blocks = ["\n".join(plain_lines(titles, rows)) for titles, rows in sections(fleet) if rows]
    click.echo("\n\n".join([headline(fleet), *blocks]))


def headline(fleet: GpuFleet) -> str:
    """The fleet in one line."""
    gpus = fleet.gpus
    unhealthy = sum(bool(gpu.trouble) for gpu in gpus)
    health = f" ({unhealthy} unhealthy)" if unhealthy else ""
    holders = counted(len(holders_of(gpus)), "pod")
    waiting = counted(fleet.waiting, "pod waits", "pods wait")
    return (
        f"{counted(len(fleet.nodes), 'node')}, {counted(len(gpus), 'GPU')}{health}, "
        f"{percent(mean_fill(gpus))} full, {holders} on them, {waiting}"
    )


def sections(fleet: GpuFleet) -> list[Section]:
    """The tables below the headline; one without rows is left out."""
    return [
        (_POOL_TITLES, _pool_rows(fleet)),
        _node_section(fleet),
        (_HOLDER_TITLES, _holder_rows(fleet.gpus)),
        (_REASON_TITLES, _reason_rows(fleet)),
    ]


def _shown(fleet: GpuFleet, trouble: str = "") -> "Group":
    from rich.console import Group, RenderableType
    from rich.text import Text

    parts: list[RenderableType] = [Text(headline(fleet), "bold")]
    if trouble:
        parts.append(Text(trouble, "bold red"))
    for titles, rows in sections(fleet):
        if rows:
            parts += ["", rich_table(titles, rows)]
    return Group(*parts)


def _pool_rows(fleet: GpuFleet) -> list[Row]:
    return [
        [
            Cell(pool.name, "bold"),
            pool.owner,
            str(len(pool.gpus)),
            Cell(str(pool.unhealthy), "bold red" if pool.unhealthy else ""),
            fill_cell(mean_fill(pool.gpus), percent(mean_fill(pool.gpus))),
            Cell(str(pool.waiting), "yellow" if pool.waiting else ""),
            Cell(pool.ready or "?", "" if pool.ready == "True" else "bold red"),
        ]
        for pool in fleet.pools
    ]


def _node_section(fleet: GpuFleet) -> Section:
    titles = list(_NODE_TITLES)
    rows = [[*_node_row(node)] for node in fleet.nodes]
    if fleet.usage is not None:
        titles[-1:-1] = TITLES
        for node, row in zip(fleet.nodes, rows, strict=True):
            known = [fleet.usage.get((node.name, gpu.uuid)) for gpu in node.gpus]
            row[-1:-1] = usage_cells(sum_of([one for one in known if one is not None]))
    return titles, rows


def _node_row(node: NodeGpus) -> Row:
    models = ",".join(dict.fromkeys(gpu.model for gpu in node.gpus))
    return [
        Cell(node.name, "bold"),
        node.pool,
        models,
        fill_cell(node.fill, percent(node.fill)),
        str(node.pods),
        "".join(_sign(gpu) for gpu in node.gpus),
    ]


def _sign(gpu: GpuState) -> str:
    if gpu.trouble:
        return _UNHEALTHY
    return _BLOCKS[max(1, round(min(1.0, gpu.fill) * 8))] if gpu.fill else _BLOCKS[0]


def _holder_rows(gpus: Sequence[GpuState]) -> list[Row]:
    rows: list[Row] = []
    for (namespace, who), its in sorted(holders_of(gpus).items()):
        shares = [
            percent(holder.share)
            for gpu in its
            for holder in gpu.holders
            if (holder.namespace, holder.pod or f"(claim {holder.claim})") == (namespace, who)
        ]
        trouble = "bold red" if any(gpu.trouble for gpu in its) else ""
        names = " ".join(_on_node(its))
        rows.append([f"{namespace}/{who}", Cell(names, trouble), " ".join(dict.fromkeys(shares))])
    return rows


def _on_node(gpus: Sequence[GpuState]) -> list[str]:
    """``sim-1/gpu-0,1``: the node once, then the numbers."""
    by_node: dict[str, list[str]] = {}
    for gpu in gpus:
        number = gpu.name.rpartition("/gpu-")[2]
        by_node.setdefault(gpu.node, []).append(number)
    return [f"{node}/gpu-{','.join(numbers)}" for node, numbers in by_node.items()]


def _reason_rows(fleet: GpuFleet) -> list[Row]:
    rows: list[Row] = []
    for reason in fleet.reasons:
        more = "" if len(reason.pods) <= _EXAMPLES else ", …"
        examples = ", ".join(reason.pods[:_EXAMPLES]) + more
        rows.append(
            [Cell(str(len(reason.pods)), "yellow"), reason.pool, f"{reason.text} ({examples})"]
        )
    return rows
