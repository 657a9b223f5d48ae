"""Answers the webhook's reviews again, each from the facts that the webhook had folded.

An answer is compared if its webhook had caught up with the facts, and if the recording has them and
every look-up that the answer needs: earlier releases made fewer look-ups.
"""

import base64
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

import msgspec

from dray.api import json_codec
from dray.api.json_codec import canonical
from dray.bus.topology import FACTS_STREAM
from dray.messages.base import decode, subject_prefix
from dray.messages.facts import Fact
from dray.messages.inputs import Reviewed
from dray.recording.lines import (
    FactLine,
    GapLine,
    Header,
    InputLine,
    Line,
    StreamLine,
    WholeLine,
)
from dray_cli.replay.other_versions import version_errors
from dray_cli.replay.outcome import ReplayOutcome
from dray_cli.replay.timeline import FactTimeline
from dray_webhook.decisions.dispatch import PATHS
from dray_webhook.decisions.review import write_review
from dray_webhook.decisions.view import READ_FACTS, View
from dray_webhook.service.recorder import replay_answer

_READ: dict[str, type[Fact]] = {subject_prefix(fact): fact for fact in READ_FACTS}
_REVIEWS = f"{subject_prefix(Reviewed)}."


@dataclass(frozen=True, slots=True)
class ReviewDifference:
    """An answer that comes out differently."""

    reviewed: Reviewed
    made: dict[str, Any]
    cause: FactLine | None
    """The last fact that the webhook had folded."""
    about: tuple[FactLine, ...] = ()
    """The newest facts of pools, policies and templates that the review names."""

    def difference(self) -> str:
        """The two answers as a unified diff, with readable patches."""
        for pretty in (_pretty, _lines):  # Patches that mean the same may differ in their bytes.
            before, after = pretty(self.reviewed.answer), pretty(self.made)
            if before != after:
                break
        return "\n".join(unified_diff(before, after, "recorded", "replayed", n=4, lineterm=""))

    def lines(self) -> list[str]:
        one = self.reviewed
        metadata = (one.request.get("object") or {}).get("metadata", {})
        name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
        place = f"{one.request.get('namespace', '')}/{name}"
        found = [f"First difference: review {one.uid} ({one.path}) of {place} by {one.instance!r}."]
        if self.cause is not None:
            found += ["The last event before it:"]
            found += [f"  fact {self.cause.sequence}  {self.cause.subject}"]
        if self.about:
            found += ["Facts about it, newest first:"]
            found += [f"  fact {fact.sequence}  {fact.subject}" for fact in self.about]
        return [*found, "", self.difference()]

    def as_json(self) -> dict[str, Any]:
        cause = self.cause
        return {
            "review": self.reviewed.uid,
            "writer": self.reviewed.instance,
            "factsSequence": self.reviewed.facts_sequence,
            "event": cause and {"sequence": cause.sequence, "subject": cause.subject},
            "recorded": self.reviewed.answer,
            "replayed": self.made,
            "difference": self.difference(),
        }


def replay_reviews(lines: Sequence[Line], outcome: ReplayOutcome) -> None:
    """Answer every recorded review again; stops at the first that differs."""
    tally = outcome.services["webhook"]
    for facts, reviewed in _reviews(lines):
        if reviewed.path not in PATHS:
            outcome.unknown[f"webhook path {reviewed.path!r}"] += 1
            continue
        if not reviewed.caught_up or not facts.cover(reviewed.facts_sequence):
            tally.uncovered += 1
            continue
        view, cause = facts.view_at(reviewed.facts_sequence)
        with version_errors(f"review {reviewed.uid} ({reviewed.path}) of {reviewed.instance!r}"):
            answer = replay_answer(reviewed, view)
            made = write_review(reviewed.uid, answer)
        if answer.unresolved and answer.allowed:  # A denial differs from what was answered.
            tally.unresolved.update({lookup.kind for lookup in answer.unresolved})
            continue
        if canonical(made) != canonical(reviewed.answer):
            tally.divergence = ReviewDifference(reviewed, made, cause, facts.about(reviewed))
            return
        tally.compared[reviewed.path] += 1


@dataclass(slots=True)
class _Read:
    """The facts that webhooks read, from one life of the facts stream."""

    facts: FactTimeline = field(default_factory=FactTimeline)
    lines: list[tuple[FactLine, Fact]] = field(default_factory=list)

    def add(self, line: FactLine) -> None:
        self.facts.lines.append(line)
        if (kind := _READ.get(".".join(line.subject.split(".")[:4]))) is not None:
            with version_errors(f"fact {line.sequence} ({line.subject})"):
                self.lines.append((line, decode(bytes(line.payload), kind)))

    def cover(self, sequence: int) -> bool:
        """Whether the view after that fact is known: the recording has this step, or webhooks read
        no other fact between it and the checkpoint."""
        begins = self.facts.begins()
        if sequence >= begins:
            return self.facts.covers(sequence)
        return not any(sequence < line.sequence <= begins for line, _ in self.lines)

    def about(self, reviewed: Reviewed) -> tuple[FactLine, ...]:
        """The newest facts of what the review and its answer name, newest first."""
        about = json_codec.abridged(reviewed.request.get("object"))
        named = json.dumps([about, _pretty(reviewed.answer)])
        newest = {
            line.subject: line
            for line, _ in self.lines
            if line.sequence <= reviewed.facts_sequence
            and line.subject.count(".") > 3
            and f'"{line.subject.rpartition(".")[2]}"' in named
        }
        return tuple(sorted(newest.values(), key=lambda line: -line.sequence))

    def view_at(self, sequence: int) -> tuple[View, FactLine | None]:
        view, last = View(), None
        for line, fact in self.lines:
            if line.sequence <= sequence:
                view.apply(fact)
                last = line
        return view, last


def _reviews(lines: Sequence[Line]) -> Iterator[tuple[_Read, Reviewed]]:
    """Reviews with the facts of their stream. A fact may be recorded after a review that depends on
    it, so the reviews come last."""
    read, found = _Read(), []
    reads: dict[str, _Read] = {}
    for line in lines:
        match line:
            case Header(streams=streams):
                reads[streams.get(FACTS_STREAM, "")] = read
            case FactLine():
                read.add(line)
            case WholeLine(sequence=sequence):
                read.facts.whole(sequence)
            case GapLine(first=first):
                read.facts.gap(first)
            case StreamLine(name=name, created=created) if name == FACTS_STREAM:
                read = reads[created] = _Read()
            case InputLine(subject=subject) if subject.startswith(_REVIEWS):
                with version_errors(f"input {line.sequence} ({subject})"):
                    found.append((read, decode(bytes(line.payload), Reviewed)))
            case _:
                pass
    for last, reviewed in found:
        yield (
            reads.get(reviewed.facts_created, _Read()) if reviewed.facts_created else last,
            reviewed,
        )


def _pretty(answer: dict[str, Any]) -> list[str]:
    response = dict(answer.get("response", {}))
    if "patch" in response:
        # An edited patch may be invalid: then it is shown as it is.
        with contextlib.suppress(ValueError, TypeError, msgspec.DecodeError):
            response["patch"] = msgspec.json.decode(base64.b64decode(response["patch"]))
    return _lines(response)


def _lines(data: dict[str, Any]) -> list[str]:
    text = msgspec.json.encode(json_codec.abridged(data), order="deterministic")
    return msgspec.json.format(text, indent=2).decode().splitlines()
