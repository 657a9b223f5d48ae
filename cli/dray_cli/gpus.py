"""``dray gpus``: one line per GPU with its health, its fill and who holds which share."""

import asyncio

import click

from dray.kube.ports import Kube
from dray_cli.cluster_names import node_option, pool_option
from dray_cli.gpu_inventory import GpuState, percent, read_gpus
from dray_cli.gpu_usage import (
    TITLES,
    GpuUses,
    read_usage,
    usage_as_json,
    usage_bus,
    usage_cells,
    usage_option,
)
from dray_cli.output import print_json
from dray_cli.tables import Cell, echo_table, fill_cell
from dray_cli.target import connect_kube, kubeconfig_option

_TITLES = ("NAME", "POOL", "MODEL", "HEALTH", "FILL", "HELD BY")
_WIDE = ("NAME", "POOL", "MODEL", "HEALTH", "FILL", "TFLOPS", "VRAM", "UUID", "HELD BY")


@click.command()
@pool_option
@node_option
@usage_option
@kubeconfig_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json"]),
    default="text",
    show_default=True,
    help="Print for people, with amounts and UUIDs, or as JSON for programs.",
)
def gpus(pool: str, node: str, with_usage: bool, kubeconfig: str | None, output: str) -> None:
    """List the GPUs: model, health, fill, and who holds which share.

    A GPU's name is its node and its number in the order of PCI addresses, as in nvidia-smi.
    """
    found, usage = asyncio.run(_read(kubeconfig, pool, node, with_usage=with_usage))
    if output == "json":
        print_json(
            {
                "gpus": [
                    gpu.as_json() | usage_as_json(usage.get((gpu.node, gpu.uuid))) for gpu in found
                ]
            }
        )
        return
    if not found:
        asked = {"pool": pool, "node": node}
        where = [f"{kind} {name!r}" for kind, name in asked.items() if name]
        click.echo(f"no GPU is published{' in ' if where else ''}{' on '.join(where)}", err=True)
        return
    is_wide = output == "wide"
    titles, rows = (
        list(_WIDE if is_wide else _TITLES),
        [_row(gpu, is_wide=is_wide) for gpu in found],
    )
    if with_usage:
        titles[-1:-1] = TITLES
        for gpu, row in zip(found, rows, strict=True):
            row[-1:-1] = usage_cells(usage.get((gpu.node, gpu.uuid)))
    echo_table(titles, rows)


async def _read(
    kubeconfig: str | None, pool: str, node: str, *, with_usage: bool
) -> tuple[list[GpuState], GpuUses]:
    kube: Kube = await connect_kube(kubeconfig)
    try:
        found = await read_gpus(kube, pool=pool, node=node)
        async with usage_bus(kubeconfig, with_usage=with_usage) as bus:
            return found, await read_usage(bus)
    finally:
        await kube.close()


def health_cell(gpu: GpuState) -> Cell:
    """``ok``, or why no pod gets the GPU, or who uses it without a claim."""
    if gpu.trouble:
        return Cell(gpu.trouble, "bold red")
    return Cell(f"used by {gpu.used_by}", "yellow") if gpu.used_by else Cell("ok", "green")


def _row(gpu: GpuState, *, is_wide: bool) -> list[Cell | str]:
    row: list[Cell | str] = [
        Cell(gpu.name, "bold"),
        gpu.pool,
        gpu.model,
        health_cell(gpu),
        fill_cell(gpu.fill, percent(gpu.fill)),
    ]
    holders = ", ".join(str(holder) for holder in gpu.holders) or "-"
    if not is_wide:
        return [*row, holders]
    amounts = [str(gpu.budgets.get(name, "")) for name in ("tflops", "vram")]
    return [*row, *amounts, gpu.uuid, holders]
