"""``dray demo``: starts a stack, runs the example on it, and reports the result."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click

from dray.api.errors import DrayError
from dray.bus.jetstream import connect as connect_bus
from dray.kube.api import connect as connect_kube
from dray_cli.demo.play import Demo, DemoReport, report_as_json
from dray_cli.output import output_option, print_json
from dray_cli.recording_file import record_option, recording_settings
from dray_cli.stacks import control_plane_for, kubelet_option
from dray_sandbox.background_stack import start_detached
from dray_sandbox.layout import ControlPlane, KubeletKind, StackOptions, simulated_nodes
from dray_sandbox.paths import checkout
from dray_sandbox.stack import Stack
from dray_sandbox.stack_file import StackFile

_STACK_NAME = "demo"
_EXAMPLES = Path("examples") / "01-quick-start"


@click.command()
@click.option("--control-plane", type=click.Choice(["sandbox", "real"]), help="[default: sandbox]")
@kubelet_option
@click.option("--allocators", type=click.IntRange(1, 8), default=2, show_default=True)
@click.option(
    "--keep", is_flag=True, help="Leave the stack running; `dray down --stack demo` stops it."
)
@record_option
@output_option
def demo(
    control_plane: ControlPlane | None,
    kubelet: KubeletKind,
    allocators: int,
    keep: bool,
    record: bool,
    output: str,
) -> None:
    """Run the quick start: apply the user guide's manifests and give the pods their GPUs.

    Starts NATS, a Kubernetes API, dray's services and three nodes with eight simulated GPUs
    each, applies examples/01-quick-start, and prints for each pod how it got its GPU.
    """
    options = StackOptions(
        name=_STACK_NAME,
        control_plane=control_plane_for(kubelet, control_plane) or "sandbox",
        kubelet=kubelet,
        nodes=simulated_nodes(3),
        allocators=allocators,
        settings=recording_settings(record),
    )
    say = _silent if output == "json" else _say
    try:
        report = asyncio.run(_demo(options, keep=keep, say=say))
    except KeyboardInterrupt:
        raise click.Abort from None
    except DrayError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json(report_as_json(report))
    sys.exit(1 if report.problems else 0)


async def _demo(options: StackOptions, *, keep: bool, say: Callable[[str], None]) -> DemoReport:
    began = time.monotonic()
    say(
        f"Starting a local stack on the {options.control_plane} control plane with "
        f"{options.kubelet} kubelets"
    )
    async with _stack(options, keep=keep, say=say) as record:
        say(f"The stack is up after {time.monotonic() - began:.1f} s")
        report = await _play(record, say)
        say(f"\n{_verdict(report)} ({time.monotonic() - began:.1f} s in all)")
        if keep:
            say(f"\nThe stack stays; `dray down --stack {options.name}` stops it.")
            say(f"export KUBECONFIG={record.kubeconfig}")
    return report


@asynccontextmanager
async def _stack(
    options: StackOptions, *, keep: bool, say: Callable[[str], None]
) -> AsyncIterator[StackFile]:
    def progress(line: str) -> None:
        say(f"  {line}")

    if keep:
        yield await start_detached(options, progress)
        return
    async with Stack(options, progress) as stack:
        yield stack.record


async def _play(record: StackFile, say: Callable[[str], None]) -> DemoReport:
    kube = await connect_kube(record.kubeconfig, user_agent="dray-demo")
    bus = await connect_bus(
        record.nats_url, name="demo", user="admin", password=record.nats_passwords["admin"]
    )
    try:
        return await Demo(kube, bus, checkout() / _EXAMPLES, say).run()
    finally:
        await bus.close()
        await kube.close()


def _verdict(report: DemoReport) -> str:
    pods = len(report.stories)
    if report.problems:
        return f"{len(report.problems)} problem(s) with {pods} pods:\n  " + "\n  ".join(
            report.problems
        )
    return f"All {pods} pods got their GPUs, and every success indicator holds"


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _silent(text: str) -> None:
    """Print nothing: JSON output has only the report."""
