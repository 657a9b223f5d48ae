"""``dray fail NODE/gpu-N``: make a simulated GPU of a local stack unhealthy."""

import asyncio
from pathlib import Path

import click

from dray.api.errors import InvalidInputError
from dray.kube.ports import SLICES
from dray_cli.gpu_names import GpuNames
from dray_cli.stacks import running_stack, stack_option
from dray_cli.target import connect_kube
from dray_sandbox.last_run import NODES_FOLDER
from dray_sandbox.services import NodeFolders
from dray_sandbox.stack_file import StackFile


@click.command()
@click.argument("gpu", metavar="NODE/gpu-N")
@click.option(
    "--xid",
    type=click.IntRange(min=1),
    default=79,
    show_default=True,
    help="NVIDIA's number of the error: 79 is a GPU that fell off the bus.",
)
@click.option("--repair", is_flag=True, help="Make it healthy again.")
@stack_option
def fail(gpu: str, xid: int, repair: bool, stack: str | None) -> None:
    """Make a simulated GPU of a local stack unhealthy, or healthy again; `dray gpus` lists them.

    No other pod gets it; pods that have it keep it and get an event about its health.
    """
    found = running_stack(stack)
    if found.kubelet != "simulated":
        raise InvalidInputError(
            f"the stack {found.name!r} has real kubelets: GPUs fail only on simulated ones"
        )
    if gpu not in (known := asyncio.run(_gpus(found))):
        raise click.UsageError(f"no GPU {gpu!r}; there are {', '.join(known)}")
    node, _, number = gpu.partition("/gpu-")
    file = NodeFolders(Path(found.directory) / NODES_FOLDER / node).unhealthy
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [line for line in lines if line.split(maxsplit=1)[:1] != [number]]
    now = kept if repair else [*kept, f"{number} xid-{xid}"]
    written = file.with_suffix(".new")
    written.write_text("".join(f"{line}\n" for line in now))
    written.replace(file)
    click.echo(f"{gpu} is healthy again" if repair else f"{gpu} is unhealthy: xid-{xid}")


async def _gpus(stack: StackFile) -> list[str]:
    """The short names of the stack's GPUs, sorted."""
    kube = await connect_kube(stack.kubeconfig)
    try:
        return GpuNames((await kube.list(SLICES)).objects).known
    finally:
        await kube.close()
