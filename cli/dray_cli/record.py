"""``dray record FILE``: records what is observed and decided, for ``dray replay``."""

import asyncio
import contextlib
import signal
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from dray.api.errors import InvalidInputError
from dray.bus.ports import BusUnavailableError
from dray.bus.topology import RECORDER
from dray.recording.file import Writer
from dray.recording.lines import Header
from dray.recording.recorder import Counts, Recorder
from dray.runtime import logs
from dray.runtime.units import parse_duration
from dray_cli.cluster_bus import open_bus
from dray_cli.output import output_option, print_json
from dray_cli.progress import WorkProgress
from dray_cli.target import kubeconfig_option, nats_option

_LOOK_S = 0.1


class DurationType(click.ParamType):  # type: ignore[type-arg]
    """A duration such as ``30s`` or ``5m``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--for", "for_s", type=DurationType(), help="Stop after this time, such as 30s.")
@click.option(
    "--events", type=click.IntRange(1), help="Stop after this many new facts and records."
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@kubeconfig_option
@nats_option
@output_option
def record(
    file: Path,
    for_s: float | None,
    events: int | None,
    force: bool,
    kubeconfig: str | None,
    nats: str | None,
    output: str,
) -> None:
    """Record facts, decisions and journals until Ctrl-C; FILE.gz is compressed.

    The recording begins with the current state, so it can be started at any time. It always has
    the allocator's decisions. It has those of the other services only if they run with
    DRAY_RECORD=true.
    """
    if not force:
        _must_be_new(file)
    logs.configure("cli", "record", level="warning", format="console")
    counts, problem = asyncio.run(_record(file, kubeconfig, nats, for_s, events))
    if not counts.begun:
        slow = (
            "the bus did not deliver the whole initial state in time; "
            "record for longer, and see with `dray doctor` whether the bus is well"
        )
        raise BusUnavailableError(f"nothing was recorded: {problem or slow}")
    if output == "json":
        print_json({"file": str(file), **asdict(counts)})
        return
    seen = f"{counts.facts} facts, {counts.records} records and {counts.inputs} inputs"
    click.echo(f"Recorded {seen} in {file}.")
    if not counts.inputs:
        click.echo(
            "No inputs: replay compares the allocators alone. Services publish their inputs if "
            "they run with DRAY_RECORD=true; a local stack after dray up --record.",
            err=True,
        )
    if counts.left_out:
        click.echo(
            f"{counts.left_out} inputs were left out: a service of an earlier release wrote them "
            "and does not redact what it records; upgrade it.",
            err=True,
        )


def _must_be_new(file: Path) -> None:
    """Refuse to overwrite a recording: it is unique. Empty files, pipes and devices are allowed."""
    if file.is_file() and file.stat().st_size:
        raise InvalidInputError(
            f"{file} exists, and would be lost: name another file, or overwrite it with --force"
        )


async def _record(
    file: Path,
    kubeconfig: str | None,
    nats: str | None,
    for_s: float | None,
    events: int | None,
) -> tuple[Counts, str | None]:
    """What was recorded, and the problem of the bus at the end; None: it had none."""
    header = Header(dray=version("dray"), recorded_unix_s=time.time())
    async with open_bus(kubeconfig, nats, role=RECORDER) as bus:
        with Writer(file) as writer:
            recorder = Recorder(bus, header, writer.write)
            running = asyncio.create_task(recorder.run())
            await _until(running, recorder.counts, for_s, events)
            problem = bus.problem
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    return recorder.counts, problem


async def _until(
    running: asyncio.Task[None], counts: Counts, for_s: float | None, events: int | None
) -> None:
    """Wait for Ctrl-C, the time, the number of events or a failure; show progress."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    began = loop.time()
    with WorkProgress() as show:
        while not (stop.is_set() or running.done()):
            done = _done(loop.time() - began, counts.events, for_s, events)
            if done is not None and done >= 1:
                return
            show(f"{counts.facts} facts, {counts.records} records, {counts.inputs} inputs", done)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _LOOK_S)


def _done(age_s: float, seen: int, for_s: float | None, events: int | None) -> float | None:
    """The part of the recording that is done; None: only Ctrl-C ends it."""
    parts = [] if for_s is None else [age_s / for_s if for_s else 1.0]
    parts += [] if events is None else [seen / events]
    return max(parts, default=None)
