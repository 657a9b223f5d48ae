"""Decisions on groups in several records of a log, assembled by their readers. Pure."""

from dataclasses import dataclass

from dray.messages.decisions import AnyRecord, DecidedGroup, PodDecision


@dataclass(frozen=True, slots=True)
class GroupParts:
    """The parts of a decision on a group that were read so far, in order."""

    parts: tuple[DecidedGroup, ...] = ()

    def followed_by(self, record: AnyRecord) -> "GroupParts":
        """The parts after the next record. A record that is not the next part ends an incomplete
        decision: its first parts were trimmed, or its last parts were never written."""
        if not isinstance(record, DecidedGroup):
            return NO_GROUP_PARTS
        if record.part == 1:
            return GroupParts((record,))
        last = self.parts[-1] if self.parts else None
        if last is None or (record.part, record.parts) != (last.part + 1, last.parts):
            return NO_GROUP_PARTS
        return GroupParts((*self.parts, record))

    @property
    def is_complete(self) -> bool:
        """Whether all parts were read."""
        return bool(self.parts) and self.parts[-1].part == self.parts[-1].parts

    @property
    def pods(self) -> tuple[PodDecision, ...]:
        """The decisions of all parts."""
        return tuple([pod for part in self.parts for pod in part.pods])


NO_GROUP_PARTS = GroupParts()
