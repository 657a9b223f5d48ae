"""Checkpoints of a decision log, assembled from their parts by readers. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from dray.messages.decisions import (
    AnyRecord,
    Checkpoint,
    ClaimDecision,
    ExcludedNode,
    GroupHold,
    Learned,
    LeftNode,
    NodeHold,
    PodDecision,
    ReservedClaim,
    Waiting,
)


def is_first_part(record: AnyRecord) -> bool:
    """Whether a checkpoint begins with the record."""
    return isinstance(record, Checkpoint) and record.part == 1


@dataclass(frozen=True, slots=True)
class CheckpointParts:
    """The parts of a checkpoint that were read so far, in order, and the values of all parts."""

    parts: tuple[Checkpoint, ...] = ()

    def followed_by(self, record: AnyRecord) -> "CheckpointParts":
        """The parts after the next record. A record that is not the next part ends a checkpoint
        that its writer did not finish."""
        if not isinstance(record, Checkpoint):
            return NO_PARTS
        if is_first_part(record):
            return CheckpointParts((record,))
        last = self.parts[-1] if self.parts else None
        if last is None or (record.part, record.parts) != (last.part + 1, last.parts):
            return NO_PARTS
        return CheckpointParts((*self.parts, record))

    @property
    def is_complete(self) -> bool:
        """Whether all parts were read."""
        return bool(self.parts) and self.parts[-1].part == self.parts[-1].parts

    @property
    def in_flight(self) -> Iterator[PodDecision]:
        """The latest decision of each pod of which a claim is reserved or committed."""
        return chain.from_iterable(part.in_flight for part in self.parts)

    @property
    def reserved(self) -> Iterator[ReservedClaim]:
        """The latest attempt of each claim."""
        return chain.from_iterable(part.reserved for part in self.parts)

    @property
    def excluded_nodes(self) -> Iterator[ExcludedNode]:
        """Nodes that are not tried soon."""
        return chain.from_iterable(part.excluded_nodes for part in self.parts)

    @property
    def left_nodes(self) -> Iterator[LeftNode]:
        """Nodes that left the domain and are in no other domain yet."""
        return chain.from_iterable(part.left_nodes for part in self.parts)

    @property
    def holds(self) -> Iterator[GroupHold]:
        """Devices that are held for groups that have lost pods."""
        return chain.from_iterable(part.holds for part in self.parts)

    @property
    def node_hold(self) -> NodeHold | None:
        """Nodes that are held for a pod or group that has waited long."""
        return next((hold for part in self.parts for hold in part.node_holds), None)

    @property
    def learned(self) -> Learned | None:
        """The workload model of earlier decisions."""
        return next((part.learned for part in self.parts if part.learned is not None), None)

    @property
    def waiting(self) -> Iterator[Waiting]:
        """The newest reasons of each waiting pod."""
        for part in self.parts:
            for pod in part.waiting_pods:
                yield Waiting(
                    domain=part.domain,
                    epoch=part.epoch,
                    writer=part.writer,
                    facts_sequence=part.facts_sequence,
                    now_unix_s=pod.recorded_unix_s,
                    settings=part.settings,
                    pod_uid=pod.pod_uid,
                    namespace=pod.namespace,
                    name=pod.name,
                    reasons=part.reasons[pod.reasons],
                    request_id=pod.request_id,
                    traceparent=pod.traceparent,
                )

    def decisions(self) -> dict[tuple[str, int], tuple[PodDecision, ClaimDecision]]:
        """The decision on each claim, with the claim's first pod, by UID and attempt."""
        decisions = tuple(chain(self.in_flight, *(part.former for part in self.parts)))
        return {
            (claim.uid, claim.attempt): (pod, claim)
            for pod in reversed(decisions)
            for claim in pod.claims
        }


NO_PARTS = CheckpointParts()
