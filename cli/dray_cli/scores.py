"""Why this node and not that: the scores of the nodes that a pod could have."""

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

from msgspec.structs import replace as replaced

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.messages.decisions import Checkpoint, Decided, Learned, log_stream
from dray.messages.facts import ClaimObserved, Fact, PodObserved
from dray_allocator.core.handle import handle
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.placement.scores import PodScores, scores_of
from dray_allocator.service.decision_logs import record_of
from dray_allocator.service.facts_consumer import decoded_fact
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen
from dray_allocator.values.options import AllocatorOptions
from dray_cli.streams import read_whole
from dray_cli.tables import Cell, plain_lines

_NONE = (
    "the pod's node is given, all devices are searched, or no facts of the pod are left; "
    "a recording may have them: dray replay FILE --scores pod/NAME"
)


@dataclass(frozen=True, slots=True)
class FoundScores:
    """The scores of the nodes that a pod could have, or why there are none."""

    scores: PodScores | None
    node: str
    """The pod's; empty while it waits."""
    when: str = "as the pool is now, without this pod"
    missing: str = ""

    def lines(self) -> list[str]:
        """As a person reads them."""
        if self.scores is None:
            return [f"No scores: {self.missing or _NONE}."]
        return list(_lines(self.scores, self.node, self.when))

    def as_json(self) -> dict[str, Any]:
        """The same as data."""
        if self.scores is None:
            return {"missing": self.missing or _NONE}
        return {"node": self.node, "when": self.when, **asdict(self.scores)}


async def read_scores(bus: Bus, pod_uid: str, node: str) -> FoundScores:
    """The scores of now, as if the pod held nothing, from facts and the workload model in the log.

    Reservations that are not written to Kubernetes yet don't count.
    """
    try:
        return FoundScores(await _scores_now(bus, pod_uid), node)
    except (BusUnavailableError, StreamMissingError) as error:
        return FoundScores(None, node, missing=f"the facts can't be read: {error}")


async def _scores_now(bus: Bus, pod_uid: str) -> PodScores | None:
    state = AllocatorState(AllocatorOptions(writer="dray-cli"))
    async with aclosing(read_whole(bus, FACTS_STREAM)) as facts:
        async for delivered in facts:
            fact = decoded_fact(delivered, state.rules.drivers)
            if fact is not None:
                freed = without_devices(fact, pod_uid)
                handle(state, FactSeen(delivered.sequence, freed, more=True))
    pod = state.facts.pods.get(pod_uid)
    domain = state.domains.get(pod.pool) if pod is not None else None
    if pod is None or domain is None:
        return None
    domain.unwritten = await _learned(bus, domain.name, domain.epoch)
    want = wanted(state, domain.name, pod)
    return scores_of(state, domain, want) if isinstance(want, PodRequest) else None


def without_devices(fact: Fact, pod_uid: str) -> Fact:
    """The fact as before the pod got its devices."""
    match fact:
        case ClaimObserved(claim=claim) if pod_uid in (claim.pod_uid, *claim.reserved_for):
            free = replaced(claim, allocation=None, decision=0, void=0, reserved_for=())
            return replaced(fact, claim=free)
        case PodObserved(pod=pod) if pod.uid == pod_uid:
            return replaced(fact, pod=replaced(pod, node=""))
    return fact


async def _learned(bus: Bus, domain: str, epoch: int) -> Learned | None:
    """The newest workload model in a log."""
    found: Learned | None = None
    try:
        async with aclosing(read_whole(bus, log_stream(domain, epoch))) as records:
            async for delivered in records:
                record = record_of(delivered)
                if isinstance(record, Decided | Checkpoint) and record.learned is not None:
                    found = record.learned
    except StreamMissingError:
        return None
    return found


def _lines(scores: PodScores, node: str, when: str) -> Iterator[str]:
    yield f"Scores {when}: {scores.policy}."
    if scores.first:
        yield f"  Before the score come {scores.first}."
    if not scores.nodes:
        yield f"  The pod fits on none of {scores.of_nodes} nodes."
        return
    names = list(dict.fromkeys(name for one in scores.nodes for name in one.parts))
    rows = [
        [
            Cell(one.node),
            str(one.score),
            *(_part(name, one.parts.get(name)) for name in names),
            "the pod's" if one.node == node else "",
        ]
        for one in scores.nodes
    ]
    titles = ("NODE", "SCORE", *(name.removeprefix("virtual_").upper() for name in names), "")
    yield from (f"  {line}" for line in plain_lines(titles, rows))
    if (more := scores.of_nodes - len(scores.nodes)) > 0:
        yield f"  {more} more of the pool score worse, or the pod does not fit there."
    if node and node not in {one.node for one in scores.nodes}:
        yield f"  {node}, the pod's node, is not among these."


def _part(name: str, part: float | None) -> str:
    if part is None:
        return ""
    return f"{part:g}" if name == "loss" else f"{100 * part:.1f}%"
