"""Make differences small: leave out what they don't need, while the two answers still differ."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from allocation.cases import Case
from allocation.differences import Difference, kind_among
from running import Programs, ask_both

Json = dict[str, Any]
Path = tuple[str | int, ...]

_LISTS: Final = ("slices", "classes", "allocated", "claims", "features")
_KEPT: Final = frozenset({"name", "driver", "pool", "generation", "resourceSliceCount", "uid"})
"""Keys without which an object would not be valid."""
_FIELDS: Final = (
    "selectors", "constraints", "config", "tolerations", "taints", "capacity", "attributes",
    "consumesCounters", "bindingConditions", "bindingFailureConditions", "bindsToNode",
    "adminAccess", "allowMultipleAllocations", "requestPolicy", "firstAvailable", "requests",
    "devices", "results", "sharedCounters", "labels",
)  # fmt: skip
"""Whose entries, or which as a whole, may be left out."""
_NEEDED: Final = frozenset(
    {"requests", "claims", "validValues", "values", "nodeSelectorTerms", "firstAvailable"}
)
"""Lists that must not become empty."""
_MOST_ROUNDS: Final = 12
_REPEATS: Final = 10
"""Kubernetes may have several answers."""


def minimised(
    differences: Sequence[Difference], programs: Programs, of_each_kind: int
) -> list[Difference]:
    """The first differences of each kind, with all left out that they don't need.

    All are made smaller at once, so that both programs start once a round.
    """
    first: dict[str, list[Difference]] = defaultdict(list)
    for one in differences:
        if len(first[one.kind]) < of_each_kind:
            first[one.kind].append(one)
    small = [one for kind in first.values() for one in kind]
    for _ in range(_MOST_ROUNDS):
        better = _round(small, programs)
        if better == small:
            break
        small = better
    return small


def _round(differences: list[Difference], programs: Programs) -> list[Difference]:
    """Each difference without what one thing after another may be left out of it."""
    alone = {
        one.case.id: [(path,) for path in _removable(one.case.question, ())] for one in differences
    }
    better = _tried(differences, alone, programs)
    together = {name: _unions(found) for name, found in better.items()}
    best = _tried(differences, together, programs)
    smaller = {name: (*best[name], *better[name]) for name in better}
    return [
        _without(one, min(smaller[one.case.id], key=lambda found: found.size, default=None))
        for one in differences
    ]


@dataclass(frozen=True, slots=True)
class _Smaller:
    """A difference that is left when the things at ``paths`` are left out."""

    paths: tuple[Path, ...]
    size: int
    theirs: Json
    ours: Json
    question: Json


def _tried(
    differences: list[Difference], steps: dict[str, list[tuple[Path, ...]]], programs: Programs
) -> dict[str, list[_Smaller]]:
    """Which steps leave the difference, by the id of the case."""
    asked: dict[str, tuple[tuple[Path, ...], Json]] = {}
    for one in differences:
        for number, paths in enumerate(steps[one.case.id]):
            key = f"{one.case.id}#{number}"
            asked[key] = paths, _leaving_out(one.case.question, paths) | {"id": key}
    found: dict[str, list[_Smaller]] = {one.case.id: [] for one in differences}
    if not asked:
        return found
    again = Programs((*programs.oracle, "-repeat", str(_REPEATS)), programs.dray)
    theirs, ours = ask_both(again, [question for _, question in asked.values()], _silent)
    kinds = {one.case.id: one.kind for one in differences}
    for key, (paths, question) in asked.items():
        name = key.rpartition("#")[0]
        if kind_among(question, theirs[key], ours[key])[0] == kinds[name]:
            size = len(json.dumps(question))
            found[name].append(_Smaller(paths, size, theirs[key], ours[key], question))
    return found


def _unions(found: list[_Smaller]) -> list[tuple[Path, ...]]:
    """All that can be left out alone, left out together: the whole, its halves, its quarters."""
    paths = [path for one in found for path in one.paths]
    parts = []
    for count in (1, 2, 4, 8):
        size = -(-len(paths) // count)
        parts += [tuple(paths[n : n + size]) for n in range(0, len(paths), size)] if size else []
    return [part for part in parts if len(part) > 1]


def _leaving_out(question: Json, paths: tuple[Path, ...]) -> Json:
    """A copy without what is at ``paths``; the last first, so that the others stay in place."""
    copy = json.loads(json.dumps(question))
    for path in sorted(paths, key=lambda path: [str(key).zfill(4) for key in path], reverse=True):
        holder = copy
        for key in path[:-1]:
            holder = holder[key]
        if not isinstance(holder, list) or len(holder) > 1 or path[-2] not in _NEEDED:
            del holder[path[-1]]
    return copy


def _without(one: Difference, smaller: _Smaller | None) -> Difference:
    if smaller is None:
        return one
    case = Case(one.case.id, smaller.question | {"id": one.case.id})
    return Difference(case, smaller.theirs, smaller.ours, one.kind, one.detail)


def _silent(line: str) -> None:
    """Small rounds have no progress to tell."""


def _removable(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, item in value.items():
            if path and key in _FIELDS and key not in ("requests", "devices", "results"):
                yield (*path, key)
            if key not in _KEPT:
                yield from _removable(item, (*path, key))
    elif isinstance(value, list):
        for n, item in enumerate(value):
            if _leaves_enough(value, path):
                yield (*path, n)
            yield from _removable(item, (*path, n))
    if path and path[-1] in ("attributes", "labels", "capacity") and isinstance(value, dict):
        yield from ((*path, key) for key in value)


def _leaves_enough(entries: list[Any], path: Path) -> bool:
    """Whether a list may lose an entry: claims need a request, a question a claim."""
    name = path[-1] if path else ""
    if name in _NEEDED:
        return len(entries) > 1
    return name in (*_LISTS, *_FIELDS)
