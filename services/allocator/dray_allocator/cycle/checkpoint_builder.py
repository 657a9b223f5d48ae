"""Divides a checkpoint into records that are short enough for the bus."""

from typing import Any, Literal

import msgspec

from dray.messages.decisions import (
    Checkpoint,
    CheckpointPart,
    ExcludedNode,
    GroupHold,
    LeftNode,
    NodeHold,
    PodDecision,
    ReservedClaim,
    Waiting,
    WaitingPod,
)
from dray.reasons import Reason

_Entry = (
    PodDecision
    | ReservedClaim
    | WaitingPod
    | ExcludedNode
    | LeftNode
    | GroupHold
    | NodeHold
    | tuple[Reason, ...]
)
_Field = Literal[
    "in_flight",
    "former",
    "reserved",
    "reasons",
    "waiting_pods",
    "excluded_nodes",
    "left_nodes",
    "holds",
    "node_holds",
]


class CheckpointBuilder:
    """Collects the entries of one checkpoint. ``head`` has the fields of the first part;
    ``most_bytes`` is the limit of the entries in one part, unless one entry is longer."""

    def __init__(self, head: Checkpoint, most_bytes: int) -> None:
        self._head = head
        self._most_bytes = most_bytes
        self._bytes = 0
        self._entries: list[dict[_Field, list[_Entry]]] = [{}]
        """By part."""
        self._reasons: dict[tuple[Reason, ...], int] = {}
        """Index of the reasons in the last part."""
        self._encoder = msgspec.json.Encoder()

    def add(self, field: _Field, entry: _Entry) -> None:
        """Add an entry to the last part, or begin another part if it is full."""
        self._make_room(entry)
        self._put(field, entry)

    def add_waiting(self, record: Waiting) -> None:
        """Add a waiting pod. Pods with equal reasons share them."""
        pod = WaitingPod(
            pod_uid=record.pod_uid,
            namespace=record.namespace,
            name=record.name,
            reasons=self._reasons.get(record.reasons, len(self._reasons)),
            recorded_unix_s=record.now_unix_s,
            request_id=record.request_id,
            traceparent=record.traceparent,
        )
        self._make_room(pod, *(() if record.reasons in self._reasons else (record.reasons,)))
        if record.reasons not in self._reasons:
            self._reasons[record.reasons] = len(self._reasons)
            self._put("reasons", record.reasons)
        index = self._reasons[record.reasons]
        self._put("waiting_pods", msgspec.structs.replace(pod, reasons=index))

    def take(self) -> tuple[Checkpoint, ...]:
        """The parts, in order."""
        count = len(self._entries)
        return tuple(self._part(number, count) for number in range(1, count + 1))

    def _make_room(self, *entries: _Entry) -> None:
        """Count the entries' bytes, and begin another part if this one has no room for them."""
        size_bytes = sum(len(self._encoder.encode(entry)) + 1 for entry in entries)
        if self._bytes and self._bytes + size_bytes > self._most_bytes:
            self._entries.append({})
            self._reasons.clear()
            self._bytes = 0
        self._bytes += size_bytes

    def _put(self, field: _Field, entry: _Entry) -> None:
        self._entries[-1].setdefault(field, []).append(entry)

    def _part(self, number: int, count: int) -> Checkpoint:
        kind = Checkpoint if number == 1 else CheckpointPart
        fields: dict[str, Any] = msgspec.structs.asdict(self._head)
        if number > 1:
            fields["learned"] = None
        for name, entries in self._entries[number - 1].items():
            fields[name] = tuple(entries)
        return kind(**fields | {"part": number, "parts": count})
