"""dray's four services with journals, in the cluster of ``simulation``.

In addition to that simulation, a user submits pods and claims to the webhook, and node-agents
prepare the claims of bound pods. One recorder reads the bus.
"""

import asyncio
import itertools
import random
from collections.abc import Sequence
from unittest import mock

import msgspec

from dray.bus.ports import Bus
from dray.bus.topology import STREAMS
from dray.kube.ports import Kube
from dray.messages.decisions import decode_record
from dray.recording.lines import GapLine, Header, InputLine, Line, RecordLine
from dray.recording.recorder import Recorder
from dray.runtime.settings import LogSettings
from dray_claim_controller.app import Controller
from dray_claim_controller.settings import ControllerSettings, Publishing, Templates
from tools.recordings.nodes import NodeDisk, node_agent
from tools.recordings.user import webhook
from tools.simulation import processes
from tools.simulation.processes import SimulatedProcess
from tools.simulation.run import SimulationOutcome, Size, simulate
from tools.simulation.world import SimulatedWorld

SIZE = Size(pods=16, faults=12, seconds=45.0)


REQUIRED = (
    "claim-controller must-begin",
    "claim-controller next-step",
    "claim-controller may-commit",
    "claim-controller may-void",
    "claim-controller template",
    "claim-controller garbage",
    "claim-controller taints",
    "claim-controller pool-status",
    "node-agent publish",
    "node-agent prepare",
    "node-agent is-live",
    "webhook mutate-pods",
    "webhook validate-pods",
    "webhook mutate-claims",
    "webhook validate-claims",
    "record decided",
    "record waiting",
    "record released",
    "writer alloc-1",
    "writer alloc-2",
    "instance cc-1",
    "instance cc-2",
    "a restart",
    "three claim-controllers",
    "a deleted claim",
    "many reviews",
    "few gaps",
)
"""Required contents of a recording."""
MANY_REVIEWS = 48
"""A seed may lose the webhook's journal early."""
FEW_GAPS = 1
"""A decision whose inputs are in a gap can't be compared."""


def record_all(first: int = 1) -> tuple[list[Line], SimulationOutcome]:
    """The run of the first seed from ``first`` on that has all of ``REQUIRED`` and no failures.

    The course of a seed changes with the code, so another seed may be found.
    """
    for seed in itertools.count(first):
        lines, outcome = record(seed)
        if not outcome.failures and not missing(lines):
            return lines, outcome
    raise AssertionError("seeds never end")


def missing(lines: Sequence[Line]) -> list[str]:
    """The contents of ``REQUIRED`` that the recording lacks."""
    found: set[str] = set()
    lives: dict[str, set[str]] = {}
    controllers: set[tuple[str, str]] = set()
    reviews = gaps = 0
    for line in lines:
        match line:
            case GapLine():
                gaps += 1
            case RecordLine():
                record = decode_record(bytes(line.payload))
                found |= {f"record {record.__struct_config__.tag}", f"writer {role(record.writer)}"}
            case InputLine():
                service = line.subject.split(".")[2]
                reviews += service == "webhook"
                entry = msgspec.json.decode(bytes(line.payload))
                found |= {f"{service} {entry.get('about') or entry.get('path', 'mutate-pods')}"}
                found |= {f"instance {role(entry['instance'])}"}
                lives.setdefault(role(entry["instance"]), set()).add(entry.get("life", ""))
                if service == "claim-controller":
                    controllers.add((entry["instance"], entry["life"]))
                    if entry.get("about") == "deleted":
                        found.add("a deleted claim")
    if any(len(begun) > 1 for begun in lives.values()):
        found.add("a restart")
    if len(controllers) > 2:
        found.add("three claim-controllers")
    if reviews >= MANY_REVIEWS:
        found.add("many reviews")
    if gaps <= FEW_GAPS:
        found.add("few gaps")
    return [needed for needed in REQUIRED if needed not in found]


def role(instance: str) -> str:
    """The replica; some restart with another instance name."""
    return instance.partition(".")[0]


def record(seed: int, size: Size = SIZE) -> tuple[list[Line], SimulationOutcome]:
    """A run's recording and outcome. Equal seeds give equal lines."""
    lines: list[Line] = []
    ids = random.Random(f"{seed}-traces")
    with mock.patch("dray.telemetry.traceparent.secrets") as drawn:
        drawn.token_hex = lambda count: f"{ids.getrandbits(8 * count):0{2 * count}x}"
        outcome = simulate(seed, size, prepare=lambda world: _add_recorded_processes(world, lines))
    return lines, outcome


def _add_recorded_processes(world: SimulatedWorld, lines: list[Line]) -> None:
    for name in ("cc-1", "cc-2"):
        world.processes[name].make = claim_controller
    for node, node_gpus in world.gpus.items():
        world.processes[f"agent-{node}"].make = node_agent(node_gpus, NodeDisk())
    world.processes["webhook"] = SimulatedProcess("webhook", webhook)

    async def follow() -> None:
        # Not a faulty connection: the recorder must miss nothing.
        bus = world.bus
        while [await bus.state(spec.name) for spec in STREAMS].count(None):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await Recorder(bus, Header(dray="simulated"), lines.append).run()

    world.processes["recorder"] = SimulatedProcess(
        "recorder", lambda *_: processes.RunningLoops([follow()])
    )


def claim_controller(kube: Kube, bus: Bus, name: str) -> processes.RunningLoops:
    """The claim-controller with its journal."""
    settings = ControllerSettings(
        instance=name,
        log=LogSettings(),
        publishing=Publishing(report_every=1.0, status_every=1.0),
        templates=Templates(unused_after=processes.UNUSED_AFTER_S),
        record=True,
    )
    controller = Controller(bus, kube, settings, clock=processes.VirtualClock())
    loops = [
        controller.watch(),
        controller.stand(),
        controller.look_up(),
        controller.readings.run(),
    ]
    return processes.RunningLoops([*loops, controller.write_journal()])
