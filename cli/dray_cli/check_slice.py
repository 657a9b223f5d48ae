"""``dray check slice``: checks a driver's ResourceSlices by the rules of Kubernetes and dray.

First come the API server's rules, as the sandbox implements them (Kubernetes 1.36). Slices that
pass are read as the allocator reads them, to find incomplete or invalid pools and devices that it
would never allocate. Devices of dray's own driver must also have what derived claims ask for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TextIO

import click
from msgspec.structs import replace

from dray.api.devices import Device, ResourceSlice
from dray.api.names import DRIVER, TFLOPS, VIRTUAL_TFLOPS, VIRTUAL_VRAM, VRAM
from dray.api.nodes import NOWHERE
from dray.api.pods import Node
from dray.kube.convert_devices import slice_from
from dray.kube.ports import Object
from dray_allocator.devices.pools import gather
from dray_allocator.devices.published_devices import faults_of
from dray_allocator.devices.versions import NEWEST, scheduler_version
from dray_cli.cel_slices import slices_of_file
from dray_cli.output import output_option, print_json
from dray_cli.text import counted
from dray_sandbox.apiserver.fields.devices import SLICE
from dray_sandbox.apiserver.resources import ApiResource
from dray_sandbox.apiserver.rules_slices import SliceRules
from dray_sandbox.apiserver.status import ApiError

_ANY_NODE: Final = Node("any", "")
_CAPACITIES: Final = (TFLOPS, VRAM, VIRTUAL_TFLOPS, VIRTUAL_VRAM)
_ATTRIBUTES: Final = ("model", "phase", "pool_name", "qos", "uuid")
"""Attributes that the selectors of derived claims read."""
_RULES: Final = SliceRules(
    ApiResource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, table=SLICE)
)


@dataclass(frozen=True, slots=True)
class SliceFinding:
    """What is wrong with a slice, a pool or a device."""

    about: str
    text: str


@click.group()
def check() -> None:
    """Check what another program publishes, without a cluster."""


@check.command("slice")
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.File("r", encoding="utf-8", lazy=True),
    required=True,
    help="ResourceSlices, as YAML or JSON; - is standard input.",
)
@output_option
@click.pass_context
def check_slice(context: click.Context, file: TextIO, output: str) -> None:
    """Say what prevents devices in a driver's ResourceSlices from being allocated.

    Applies the rules of Kubernetes 1.36 and dray's own. Exit codes: 0 no problem, 1 problems.
    """
    slices = slices_of_file(file)
    found = list(_findings_of(slices))
    if output == "json":
        print_json([{"about": one.about, "text": one.text} for one in found])
    else:
        for one in found:
            click.echo(f"NO  {one.about}: {one.text}")
        devices = sum(len(part["spec"].get("devices") or ()) for part in slices)
        seen = f"{counted(len(slices), 'slice')} with {counted(devices, 'device')}"
        click.echo(f"{seen}: {len(found)} wrong")
    context.exit(1 if found else 0)


def _findings_of(slices: Iterable[Object]) -> Iterator[SliceFinding]:
    """All problems. Pools and devices are checked only in slices that the API server accepts."""
    accepted: list[ResourceSlice] = []
    for obj in slices:
        refusals = list(_refusals(obj))
        yield from (SliceFinding(f"slice {_name(obj)}", text) for text in refusals)
        if not refusals:
            accepted.append(slice_from(obj))
    yield from _pool_findings(accepted)
    for part in accepted:
        for device in part.devices:
            faults = (*faults_of(device), *_own_faults(part, device))
            about = f"device {part.pool}/{device.name}"
            yield from (SliceFinding(about, fault) for fault in faults)


def _refusals(obj: Object) -> Iterator[str]:
    """Why the API server refuses a slice, and which fields it drops."""
    try:
        read, unknown = _RULES.read(obj, strict=False)
    except ApiError as error:
        yield str(error)
        return
    yield from (f"unknown field {name}" for name in unknown)
    errors = (*_RULES.metadata_errors(read["metadata"]), *_RULES.validate_create(read))
    yield from map(str, errors)


def _pool_findings(slices: Iterable[ResourceSlice]) -> Iterator[SliceFinding]:
    """Incomplete or invalid pools, as if one node could use all slices."""
    seen = [replace(part, node=_ANY_NODE.name, nodes=NOWHERE) for part in slices]
    for pool in gather(seen, _ANY_NODE, scheduler_version(NEWEST)):
        if pool.invalid:
            yield SliceFinding(f"pool {pool}", pool.invalid)
        if pool.incomplete:
            yield SliceFinding(
                f"pool {pool}", "incomplete: resourceSliceCount is not the number of its slices"
            )


def _own_faults(part: ResourceSlice, device: Device) -> Iterator[str]:
    """What a device of dray's own driver lacks (user guide §6.2.2)."""
    if part.driver != DRIVER:
        return
    if not part.node:
        yield "spec.nodeName is missing: dray's devices are on one node"
    if not device.allow_multiple_allocations:
        yield "allowMultipleAllocations is not true: it can't be shared"
    for kind, wanted, there in (
        ("capacity", _CAPACITIES, _local(device.capacity)),
        ("attribute", _ATTRIBUTES, _local(device.attributes)),
    ):
        yield from (f"{kind} {name} is missing" for name in wanted if name not in there)


def _local(qualified: Mapping[str, object]) -> set[str]:
    """Names without the driver's domain."""
    return {name.removeprefix(f"{DRIVER}/") for name in qualified}


def _name(obj: Object) -> str:
    return str((obj.get("metadata") or {}).get("name", "without a name"))
