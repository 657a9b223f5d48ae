"""``dray trace pod/NAME``: a pod's waterfall from admission to prepared."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import click

from dray.api import names
from dray.bus.ports import BusUnavailableError
from dray.kube.convert_metadata import annotation
from dray.kube.ports import PODS, Kube, NotFoundError
from dray.telemetry import parse
from dray_cli.cluster_bus import open_bus
from dray_cli.cluster_names import namespace_option, pod_argument
from dray_cli.explain import pod_name
from dray_cli.gpu_names import GpuNames, full_names_option, names_in
from dray_cli.output import print_json
from dray_cli.target import (
    connect_kube,
    kubeconfig_of,
    kubeconfig_option,
    nats_option,
    stack_of,
)
from dray_cli.text import columns
from dray_cli.trace import picture
from dray_cli.trace.files import newest_trace_of, spans_of_trace
from dray_cli.trace.inputs import NothingKnownError, read_inputs
from dray_cli.trace.spans import PodTrace, with_prepared, with_waiting
from dray_cli.trace.synthesized_spans import spans_of
from dray_cli.trace.waterfall import as_json, details, lines
from dray_sandbox.paths import traces_directory
from dray_sandbox.stack_file import StackFile


@click.command()
@pod_argument
@namespace_option
@full_names_option
@click.option(
    "--messages",
    is_flag=True,
    help="Use messages and objects even if spans were recorded.",
)
@kubeconfig_option
@nats_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "svg", "html"]),
    default="text",
    show_default=True,
    help="Print for people, as JSON for programs, or as a picture: `-o svg > trace.svg`.",
)
def trace(
    target: str,
    namespace: str,
    full_names: bool,
    messages: bool,
    kubeconfig: str | None,
    nats: str | None,
    output: str,
) -> None:
    """Show where a pod's time went, from admission to prepared, service by service.

    Needs no tracing backend: it reads the local stack's spans or, if there are none, messages
    on the bus and objects in Kubernetes. Exit code 1: nothing is known about the pod.
    """
    pod = pod_name(target)
    found, gpu_names = asyncio.run(
        _trace(kubeconfig, nats, namespace, pod, recorded=not messages, short=not full_names)
    )
    if output == "json":
        print_json(as_json(found))
    elif output == "svg":
        click.echo(gpu_names.shortened(picture.svg(found)), nl=False)
    elif output == "html":
        click.echo(gpu_names.shortened(picture.html(found)), nl=False)
    else:
        click.echo("\n".join(lines(found, width=columns(), names=gpu_names)))


async def _trace(
    kubeconfig: str | None,
    nats: str | None,
    namespace: str,
    name: str,
    *,
    recorded: bool,
    short: bool,
) -> tuple[PodTrace, GpuNames]:
    stack = stack_of(kubeconfig_of(kubeconfig))
    kube = await connect_kube(kubeconfig)
    try:
        found = await _recorded(kube, stack, namespace, name) if recorded else None
        if found is None or not (found.prepared or found.gone):
            synthesized = await _synthesized(kube, kubeconfig, nats, namespace, name)
            found = (
                replace(found, spans=with_prepared(found.spans, synthesized.spans))
                if found is not None
                else synthesized
            )
        if not short:
            return found, GpuNames()
        texts = (text for span in found.spans for text in details(found, span))
        return found, await names_in(kube, "\n".join(texts))
    finally:
        await kube.close()


async def _recorded(
    kube: Kube, stack: StackFile | None, namespace: str, name: str
) -> PodTrace | None:
    """The trace from the local stack's files; None if they have no spans."""
    if stack is None:
        return None
    folder = traces_directory(Path(stack.directory))
    pod, trace_id = None, ""
    try:
        pod = await kube.get(PODS, name, namespace)
    except NotFoundError:
        trace_id = newest_trace_of(folder, namespace, name)
    else:
        position = parse(annotation(pod, names.TRACEPARENT))
        trace_id = position.trace_id if position else ""
    spans = spans_of_trace(folder, trace_id) if trace_id else ()
    if not spans:
        return None
    source = f"the files of the stack {stack.name!r}"
    shown = with_waiting(spans, time.time_ns()) if pod is not None else spans
    return PodTrace(namespace, name, trace_id, shown, source, recorded=True, gone=pod is None)


async def _synthesized(
    kube: Kube, kubeconfig: str | None, nats: str | None, namespace: str, name: str
) -> PodTrace:
    source = "messages and objects"
    try:
        async with open_bus(kubeconfig, nats) as bus:
            found = await read_inputs(kube, bus, namespace, name)
    except BusUnavailableError as error:
        source = f"objects (the bus was not reached: {error})"
        found = await read_inputs(kube, None, namespace, name)
    if not found.traceparent:
        raise NothingKnownError(
            f"pod {namespace}/{name} has no annotation {names.TRACEPARENT}: dray's webhook did "
            "not admit it, because it asks for no GPU of dray"
        )
    if found.missing:
        source += f"; {found.missing}"
    spans = spans_of(found, time.time())
    position = parse(found.traceparent)
    trace_id = position.trace_id if position else ""
    gone = found.pod is None
    return PodTrace(namespace, name, trace_id, spans, source, recorded=False, gone=gone)
