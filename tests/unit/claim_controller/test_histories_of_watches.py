"""Any order in which lists, events, responses and reads of one correct history arrive. None of it
looks like a store that was restored from a backup."""

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.claim_controller.test_object_cache import allocated, claim

from dray.kube.ports import CLAIMS, Changed, Deleted, Listed, Object
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RuleRecorder, apply_recorded_event
from dray_claim_controller.cache.snapshot import restore_snapshot, take_snapshot

_WRITES = ("create", "update", "delete")
_READS = ("list", "respond", "miss")
_ARRIVALS = ("arrive", "watch")


def _steps(*kinds: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    one = st.tuples(st.sampled_from((*_WRITES, *_READS, *_ARRIVALS, *kinds)), st.integers(0, 3))
    return st.lists(one, min_size=20, max_size=60)


@dataclass
class Journal:
    """What a recorder notes."""

    lines: list[tuple[str, dict]] = field(default_factory=list)  # type: ignore[type-arg]

    def consumed(self, about: str, data: dict) -> None:  # type: ignore[type-arg]
        self.lines.append((about, data))


class History:
    """A server with claims, and a cache that hears of them late."""

    def __init__(self) -> None:
        self.revision = 1
        self.living: dict[str, Object] = {}
        self.versions: dict[str, list[int]] = {}
        self.events: list[Changed | Deleted] = []
        self.shown = 0
        self.journal = Journal()
        self.cache = ObjectCache()
        self.recorder = RuleRecorder(self.cache, self.journal)  # type: ignore[arg-type]
        self.plain = ObjectCache()
        """Gets lists whose objects were compared when they were read, not when they are applied."""
        self.on_their_way: list[tuple[str, Listed, Listed] | tuple[str, Object]] = []
        self.is_watched = True
        for cache in (self.recorder, self.plain):
            cache.apply(CLAIMS, Listed((), 1))

    def step(self, kind: str, number: int) -> None:
        getattr(self, kind)(number)
        for cache in (self.cache, self.plain):
            for uid in self.living:
                key = FactKey("claim", uid)
                assert not any(cache.is_restored(key, at) for at in self.versions[uid])

    def _write(self, uid: str) -> Object:
        self.revision += 1
        self.versions.setdefault(uid, []).append(self.revision)
        obj = claim(self.revision, uid, allocation=allocated(f"gpu-{uid}-{self.revision % 3}"))
        obj["metadata"]["name"] = uid
        return obj

    def create(self, number: int) -> None:
        uid = f"c{len(self.versions)}"
        self.living[uid] = self._write(uid)
        self.events.append(Changed(self.living[uid]))

    def _chosen(self, number: int) -> str | None:
        return list(self.living)[number % len(self.living)] if self.living else None

    def update(self, number: int) -> None:
        if (uid := self._chosen(number)) is not None:
            self.living[uid] = self._write(uid)
            self.events.append(Changed(self.living[uid]))

    def delete(self, number: int) -> None:
        if (uid := self._chosen(number)) is not None:
            del self.living[uid]
            self.events.append(Deleted(self._write(uid)))

    def list(self, number: int) -> None:
        listed = Listed(tuple(self.living.values()), self.revision)
        made = tuple(map(self.plain.transform(CLAIMS), listed.objects))
        self.on_their_way.append(("list", listed, Listed(made, self.revision)))

    def respond(self, number: int) -> None:
        if (uid := self._chosen(number)) is not None:
            self.on_their_way.append(("respond", self.living[uid]))

    def miss(self, number: int) -> None:
        """A read of a claim that the cache has, and the server no longer."""
        known = [cached for uid, cached in self.cache.claims.items() if uid not in self.living]
        if known:
            self.on_their_way.append(("miss", known[number % len(known)].object))

    def arrive(self, number: int) -> None:
        if not self.on_their_way:
            return
        what = self.on_their_way.pop(number % len(self.on_their_way))
        match what:
            case ("list", listed, made):
                self.recorder.apply(CLAIMS, listed)
                for _ in self.plain.apply_list(CLAIMS, made):
                    pass
            case ("respond", obj):
                self.recorder.apply_response(CLAIMS, obj)
                self.plain.apply_response(CLAIMS, obj)
            case (_, obj):
                self.recorder.apply_missing(CLAIMS, obj)
                self.plain.apply_missing(CLAIMS, obj)

    def watch(self, number: int) -> None:
        if self.shown < len(self.events):
            event = self.events[self.shown]
            self.shown += 1
            for cache in (self.recorder, self.plain):
                cache.apply(CLAIMS, event)

    def expire(self, number: int) -> None:
        """The watch lists again."""
        self.is_watched = False
        self.shown = len(self.events)
        for cache in (self.recorder, self.plain):
            cache.apply(CLAIMS, Listed(tuple(self.living.values()), self.revision))


def _state(cache: ObjectCache) -> tuple[dict[str, int], set[str]]:
    claims = {uid: cached.claim.resource_version for uid, cached in cache.claims.items()}
    held = {device.device for device, uids in cache.devices.holders.items() if uids}
    return claims, held


_DELETED_READ_AND_LISTED = ("create", "watch", "list", "delete", "miss", "watch", "arrive")


@settings(max_examples=300)
@example([*((kind, 1) for kind in _DELETED_READ_AND_LISTED), ("arrive", 0)], 0)
@given(st.one_of(_steps(), _steps("expire")), st.integers(0, 60))
def test_no_living_claim_is_dropped_or_goes_back_and_the_end_is_as_on_the_server(
    steps: list[tuple[str, int]], cut: int
) -> None:
    history = History()
    snapshot, after = take_snapshot(history.cache), 0
    for number, (kind, choice) in enumerate(steps):
        before = _state(history.cache)[0], _state(history.plain)[0]
        history.step(kind, choice)
        for known, cache in zip(before, (history.cache, history.plain), strict=True):
            now = _state(cache)[0]
            assert all(now.get(uid, 0) >= at for uid, at in known.items() if uid in history.living)
        if number == cut:
            snapshot, after = take_snapshot(history.cache), len(history.journal.lines)
    while history.on_their_way:
        history.step("arrive", 0)
    while history.shown < len(history.events):
        history.step("watch", 0)
    if not history.is_watched:  # A list of before may show what was made and deleted unseen.
        history.step("expire", 0)

    served = {uid: int(obj["metadata"]["resourceVersion"]) for uid, obj in history.living.items()}
    devices = {f"gpu-{uid}-{at % 3}" for uid, at in served.items()}
    assert _state(history.cache) == _state(history.plain) == (served, devices)
    replayed = restore_snapshot(snapshot)
    for about, data in history.journal.lines[after:]:
        apply_recorded_event(replayed, about, data)
    assert _state(replayed) == (served, devices)
    assert replayed.gone() == history.cache.gone()


def test_a_read_that_finds_nothing_lets_no_list_of_before_revive_a_claim() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Listed((claim(5, allocation=allocated()),), 5))
    cache.apply(CLAIMS, Deleted(claim(9)))
    cache.apply_missing(CLAIMS, claim(5))
    cache.apply(CLAIMS, Listed((claim(5, allocation=allocated()),), 7))
    assert not cache.claims


def test_a_read_that_finds_nothing_says_nothing_of_what_the_watch_has_shown() -> None:
    """The watch of a new leader is at 3, its predecessor has published what a claim was at 5."""
    cache = ObjectCache()
    cache.apply(CLAIMS, Listed((claim(2, "kept"), claim(3, "read")), 3))
    cache.apply_response(CLAIMS, claim(7, "read"))
    cache.apply_missing(CLAIMS, claim(7, "read"))
    assert not cache.is_restored(FactKey("claim", "kept"), 5)
    assert cache.listed[CLAIMS.plural] == 3


@pytest.mark.parametrize("at", [6, None])
def test_a_replay_knows_when_claims_were_deleted(at: int | None) -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Listed((claim(5), claim(90, "newest")), 90))
    if at is None:
        cache.apply_missing(CLAIMS, claim(5))
    else:
        cache.apply(CLAIMS, Deleted(claim(at)))
    replayed = restore_snapshot(take_snapshot(cache))
    for one in (cache, replayed):
        one.apply(CLAIMS, Listed((claim(5, allocation=allocated()),), 8))
    assert set(replayed.claims) == set(cache.claims) == {"newest", *(["c"] if at else [])}
