"""The first difference between a replay and its recording, for people and for programs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import msgspec

from dray.api import json_codec
from dray.api.pods import GroupKey
from dray.messages.base import decode, subject_prefix, token
from dray.messages.decisions import AnyRecord, Decided, NodeLeft, Released, Waiting
from dray.messages.facts import Fact, GroupObserved, PodObserved, PolicyObserved, PoolObserved
from dray.recording.lines import FactLine, RecordLine

_MOST_FACTS = 8


@dataclass(frozen=True, slots=True)
class Divergence:
    """A record that comes out differently."""

    line: RecordLine
    recorded: AnyRecord
    made: AnyRecord | None
    """None: the facts don't show the log's domain and epoch."""
    facts: Sequence[FactLine]
    """All facts of the recording."""

    @property
    def title(self) -> str:
        """Which record it is."""
        one = self.line
        kind = type(self.recorded).__struct_config__.tag
        return (
            f"record {one.sequence} of domain {one.domain!r}, epoch {one.epoch} "
            f"({kind}, written by {self.recorded.writer!r})"
        )

    def difference(self) -> str:
        """The two records as a unified diff."""
        before = _pretty(self.recorded)
        after = _pretty(self.made) if self.made is not None else []
        return "\n".join(unified_diff(before, after, "recorded", "replayed", n=4, lineterm=""))

    def about(self) -> list[FactLine]:
        """The newest applied facts about what a record names, its PodGroups, pool and policy."""
        newest: dict[str, FactLine] = {}
        parts = {token(uid) for record in (self.recorded, self.made) for uid in _names(record)}
        for fact in self.facts:
            if fact.sequence > self.recorded.facts_sequence:
                break
            if parts & set(fact.subject.split(".")):
                newest[fact.subject] = fact
        found = sorted(newest.values(), key=_newest_first)[:_MOST_FACTS]
        more = [*self._governing(), *self._groups(newest.values())]
        governing = [fact for fact in more if fact not in found]
        return sorted([*found, *governing], key=_newest_first)

    def _governing(self) -> list[FactLine]:
        """The log's pool and its policy, as they were then: they influence every choice."""
        pool = self._newest(PoolObserved, self.line.domain)
        if pool is None:
            return []
        policy = self._newest(
            PolicyObserved, decode(bytes(pool.payload), PoolObserved).pool.template
        )
        return [pool] if policy is None else [policy, pool]

    def _groups(self, facts: Iterable[FactLine]) -> Iterator[FactLine]:
        """The PodGroups of the pods that are among these facts."""
        groups: dict[GroupKey, None] = {}
        for fact in facts:
            if fact.subject.startswith(f"{subject_prefix(PodObserved)}."):
                member = decode(bytes(fact.payload), PodObserved).pod.member
                groups |= {member.group: None} if member is not None else {}
        for key in groups:
            group = self._newest(GroupObserved, key.api, key.namespace, key.name)
            if group is not None:
                yield group

    def _newest(self, kind: type[Fact], *ids: str) -> FactLine | None:
        subject = ".".join((subject_prefix(kind), *map(token, ids)))
        upto = self.recorded.facts_sequence
        found = (one for one in reversed(self.facts) if one.sequence <= upto)
        return next((one for one in found if one.subject == subject), None)

    def cause(self) -> FactLine | None:
        """The last fact applied before the record was decided: it triggered the decision."""
        upto = [one for one in self.facts if one.sequence <= self.recorded.facts_sequence]
        return upto[-1] if upto else None

    def lines(self) -> list[str]:
        """The divergence as a person reads it."""
        cause = self.cause()
        found = [f"First difference: {self.title}."]
        if cause is not None:
            found += ["The last event before it:", _fact(cause)]
        if about := [fact for fact in self.about() if fact is not cause]:
            found += ["Facts about it, newest first:", *map(_fact, about)]
        if self.made is None:
            found.append("The facts before it do not announce this domain and epoch.")
        return [*found, "", self.difference()]

    def as_json(self) -> dict[str, Any]:
        """The divergence as data."""
        cause = self.cause()
        return {
            "domain": self.line.domain,
            "epoch": self.line.epoch,
            "sequence": self.line.sequence,
            "writer": self.recorded.writer,
            "factsSequence": self.recorded.facts_sequence,
            "event": None if cause is None else _fact_data(cause),
            "about": [_fact_data(fact) for fact in self.about()],
            "recorded": json_codec.abridged(self.recorded),
            "replayed": None if self.made is None else json_codec.abridged(self.made),
            "difference": self.difference(),
        }


def _newest_first(fact: FactLine) -> int:
    return -fact.sequence


def _pretty(record: AnyRecord) -> list[str]:
    text = msgspec.json.encode(json_codec.abridged(record), order="deterministic")
    return msgspec.json.format(text, indent=2).decode().splitlines()


def _names(record: AnyRecord | None) -> Iterator[str]:
    match record:
        case Decided(pods=pods):
            for pod in pods:
                yield from (pod.pod_uid, pod.node, *(claim.uid for claim in pod.claims))
        case Waiting():
            yield from (one.pod_uid for one in record.by_pod())
        case Released(releases=releases):
            yield from (release.claim_uid for release in releases)
        case NodeLeft(node=node):
            yield node
        case _:
            return


def _fact(fact: FactLine) -> str:
    return f"  fact {fact.sequence}  {fact.subject}"


def _fact_data(fact: FactLine) -> dict[str, Any]:
    return {"sequence": fact.sequence, "subject": fact.subject}
