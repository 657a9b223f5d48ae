"""Why a pod gets a node: the scores of the nodes, at the pod's decision or now."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec
from msgspec.structs import replace as replaced

from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.messages.decisions import Checkpoint, Decided, Learned, log_stream
from dray.messages.facts import ClaimObserved, Fact, PodObserved
from dray.messages.rpc import SCORES_SUBJECT, PodScores, Scores, ScoresReply
from dray_allocator.core.handle import handle
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.placement.scores import scores_of
from dray_allocator.service.decision_logs import record_of
from dray_allocator.service.facts_consumer import decoded_fact
from dray_allocator.state.kept_scores import KEPT, PER_TICK
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen
from dray_allocator.values.options import AllocatorOptions
from dray_cli.streams import read_whole
from dray_cli.tables import Row, echo_table, plain_lines
from dray_cli.text import wrapped_on_terminal

_NONE = (
    "the pod's node is given, all devices are searched, or no facts of the pod are left; "
    "a recording may have them: dray replay FILE --scores pod/NAME"
)
Table = tuple[Sequence[str], Sequence[Row]]
"""Titles and rows."""
_ANSWER_S: Final = 1.0
"""Time-out for the answer of the replica that decided; other replicas do not answer."""
_NOT_KEPT: Final = (
    "No running allocator has the scores of the decision: each keeps those of its last "
    f"{KEPT} decisions, of at most {PER_TICK} a second, until it ends. A recording may have them: "
    "dray replay FILE --scores pod/NAME"
)


@dataclass(frozen=True, slots=True)
class FoundScores:
    """The scores of the nodes that a pod could get, or why there are none."""

    scores: PodScores | None
    node: str
    """The pod's node; empty while the pod waits."""
    when: str = "as the pool is now, without this pod"
    missing: str = ""
    note: str = ""
    """Why the scores are not those of the decision; empty if they are, or if there is none."""

    def lines(self) -> list[str]:
        """The scores as lines of text."""
        lines: list[str] = []
        for part in self._parts():
            if isinstance(part, str):
                lines.append(part)
            else:
                lines += [f"  {line}" for line in plain_lines(*part)]
        return lines

    def _parts(self) -> Iterator[str | Table]:
        """Sentences, and the table."""
        if self.note:
            yield f"{self.note}."
        if self.scores is None:
            yield f"No scores: {self.missing or _NONE}."
        else:
            yield from _parts(self.scores, self.node, self.when)

    def echo(self) -> None:
        """Print it within the terminal's width."""
        for part in self._parts():
            if isinstance(part, str):
                click.echo(wrapped_on_terminal(part))
            else:
                echo_table(*part)

    def as_json(self) -> dict[str, Any]:
        """The same as data."""
        note = {"note": self.note} if self.note else {}
        if self.scores is None:
            return {"missing": self.missing or _NONE, **note}
        scores = msgspec.to_builtins(msgspec.structs.asdict(self.scores))
        return {"node": self.node, "when": self.when, **scores, **note}


async def read_scores(bus: Bus, pod_uid: str, node: str) -> FoundScores:
    """The scores of the decision, if the replica that decided still has them.

    Otherwise the current scores, as if the pod held nothing, from facts and the workload model in
    the log. These leave out reservations that are not written to Kubernetes yet. ``node``: the
    pod's node; empty: nothing is decided.
    """
    if node and (kept := await _kept(bus, pod_uid, node)) is not None:
        return kept
    note = _NOT_KEPT if node else ""
    try:
        return FoundScores(await _scores_now(bus, pod_uid), node, note=note)
    except (BusUnavailableError, StreamMissingError) as error:
        return FoundScores(None, node, missing=f"the facts can't be read: {error}", note=note)


async def _kept(bus: Bus, pod_uid: str, node: str) -> FoundScores | None:
    """The decision's scores; None if no replica has them, or only those of an earlier decision."""
    question = msgspec.json.encode(Scores(pod_uid=pod_uid))
    try:
        answer = await bus.request(SCORES_SUBJECT, question, timeout_s=_ANSWER_S)
        reply = msgspec.json.decode(answer, type=ScoresReply)
    except (BusUnavailableError, msgspec.MsgspecError):
        return None
    if reply.scores is None or reply.node != node:
        return None
    when = datetime.fromtimestamp(reply.decided_unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return FoundScores(
        reply.scores, node, f"when it was decided ({when}, kept by allocator {reply.instance})"
    )


async def _scores_now(bus: Bus, pod_uid: str) -> PodScores | None:
    state = AllocatorState(AllocatorOptions(writer="dray-cli"))
    async with aclosing(read_whole(bus, FACTS_STREAM)) as facts:
        async for delivered in facts:
            fact = decoded_fact(delivered, state.options.drivers)
            if fact is not None:
                freed = _without_devices(fact, pod_uid)
                handle(state, FactSeen(delivered.sequence, freed, more=True))
    pod = state.facts.pods.get(pod_uid)
    domain = state.domains.get(pod.pool) if pod is not None else None
    if pod is None or domain is None:
        return None
    domain.unwritten = await _learned(bus, domain.name, domain.epoch)
    want = wanted(state, domain.name, pod)
    return scores_of(state, domain, want) if isinstance(want, PodRequest) else None


def _without_devices(fact: Fact, pod_uid: str) -> Fact:
    """The fact as it was before the pod got its devices."""
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


def _parts(scores: PodScores, node: str, when: str) -> Iterator[str | Table]:
    yield f"Scores {when}: {scores.policy}."
    if scores.first:
        yield f"  Compared before the score: {scores.first}."
    if not scores.nodes:
        yield f"  The pod fits on none of {scores.of_nodes} nodes."
        return
    names = list(dict.fromkeys(name for one in scores.nodes for name in one.parts))
    rows: list[Row] = [
        [
            one.node,
            str(one.score),
            *(_part(name, one.parts.get(name)) for name in names),
            "the pod's" if one.node == node else "",
        ]
        for one in scores.nodes
    ]
    titles = ("NODE", "SCORE", *(name.removeprefix("virtual_").upper() for name in names), "")
    yield titles, rows
    if (more := scores.of_nodes - len(scores.nodes)) > 0:
        yield f"  {more} more of the pool score worse, or the pod does not fit there."
    if node and node not in {one.node for one in scores.nodes}:
        yield f"  {node}, the pod's node, is not among these."


def _part(name: str, part: float | None) -> str:
    if part is None:
        return ""
    return f"{part:g}" if name == "loss" else f"{100 * part:.1f}%"
