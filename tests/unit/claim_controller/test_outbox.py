"""Facts never go back, and a changed fact never repeats its message id."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.claims import Claim, ClaimSpec
from dray.api.devices import Device, ResourceSlice
from dray.api.pods import Node
from dray.kube.ports import CLAIMS, NODES, SLICES, Changed, Listed, Object, Resource
from dray.messages.base import message_id, subject_of
from dray.messages.facts import (
    ClaimObserved,
    DomainObserved,
    Fact,
    InventoryObserved,
    NodeObserved,
    SliceObserved,
)
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import key_of
from dray_claim_controller.facts.outbox import Outbox, kind_behind


def claim(revision: int, pool: str = "a") -> ClaimObserved:
    return ClaimObserved(
        revision=revision, claim=Claim("u", "ns", "c", revision, pool, ClaimSpec())
    )


def node(revision: int, cpu: int = 0) -> NodeObserved:
    return NodeObserved(revision=revision, node=Node("n", "u", used_cpu_milli=cpu))


def gone(fact: Fact, revision: int) -> Fact:
    return msgspec.structs.replace(fact, deleted=True, revision=revision)


def published(*facts: Fact) -> Outbox:
    outbox = Outbox()
    for fact in facts:
        outbox.published(fact)
    return outbox


def test_a_new_fact_is_published_and_an_equal_one_is_not() -> None:
    assert Outbox().plan(key_of(claim(5)), claim(5), 5) == [claim(5)]
    assert published(claim(5)).plan(key_of(claim(5)), claim(5), 5) == []
    assert published(node(5)).plan(key_of(node(5)), node(9), 9) == []


def test_an_attribute_of_another_type_is_another_fact() -> None:
    def of(value: bool | int, revision: int) -> SliceObserved:
        device = Device("gpu", {"fast": value})
        one = ResourceSlice("s", "u", "d", "p", 1, 1, "n", (device,))
        return SliceObserved(revision=revision, slice=one)

    outbox = published(of(True, 5))
    assert outbox.plan(key_of(of(True, 6)), of(True, 6), 6) == []
    assert outbox.plan(key_of(of(1, 6)), of(1, 6), 6) == [of(1, 6)]


def test_an_older_object_is_dropped() -> None:
    assert published(claim(5)).plan(key_of(claim(4)), claim(4), 4) == []


def test_fields_that_are_not_of_the_object_may_change_again_and_again() -> None:
    """At one resourceVersion of the claim."""
    outbox, revisions = Outbox(), []
    for beside in (("b",), ("c",), (), ("b",)):
        fact = msgspec.structs.replace(claim(100), beside=beside)
        (newer,) = outbox.plan(key_of(fact), fact, 100)
        outbox.published(newer)
        revisions.append(newer.revision)
    assert revisions == [100, 101, 102, 103]
    (moved,) = outbox.plan(key_of(claim(101)), claim(101), 101)
    assert moved.revision == 104
    outbox.published(moved)
    assert outbox.plan(key_of(claim(100)), claim(100), 100) == []


def test_a_derived_fact_that_changed_gets_a_higher_revision() -> None:
    (newer,) = published(node(5)).plan(key_of(node(5)), node(5, cpu=100), 5)

    assert newer.revision == 6


def test_what_is_gone_gets_one_tombstone() -> None:
    outbox = published(claim(5))
    (tombstone,) = outbox.plan(key_of(claim(5)), None, 9)

    assert (tombstone.deleted, tombstone.revision) == (True, 9)
    outbox.published(tombstone)
    assert outbox.plan(key_of(claim(5)), None, 9) == []
    assert outbox.last(key_of(claim(5))) is None


def test_an_object_made_again_may_have_a_lower_revision() -> None:
    """A new API server counts from the start; the facts go on from where they were."""
    old = SliceObserved(revision=500, slice=ResourceSlice("s", "old", "d", "p", 1, 1, "n"))
    new = SliceObserved(revision=3, slice=ResourceSlice("s", "new", "d", "p", 1, 1, "n"))
    (fact,) = published(old).plan(key_of(new), new, 3)

    assert fact.revision == 501


def test_a_claim_relabelled_leaves_its_old_subject() -> None:
    tombstone, fact = published(claim(5)).plan(key_of(claim(6, "b")), claim(6, "b"), 6)

    assert tombstone.deleted
    assert subject_of(tombstone) == subject_of(claim(5))
    assert subject_of(fact) == subject_of(claim(6, "b"))


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3) | st.none()), max_size=30))
def test_revisions_grow_and_message_ids_differ(changes: list[tuple[int, int | None]]) -> None:
    outbox, seen = Outbox(), []
    for revision, cpu in changes:
        fact = None if cpu is None else node(revision, cpu)
        for newer in outbox.plan(key_of(node(0)), fact, revision):
            outbox.published(newer)
            seen.append(newer)

    revisions = [fact.revision for fact in seen]
    assert revisions == sorted(set(revisions))
    assert len({message_id(fact) for fact in seen}) == len(seen)
    for before, after in itertools.pairwise(seen):
        assert msgspec.structs.replace(before, revision=after.revision) != after


OUTCOMES = st.sampled_from(["stored", "stored, and nobody knows", "lost"])


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 3), OUTCOMES), max_size=20))
def test_what_may_be_stored_is_corrected(is_claim: bool, changes: list[tuple[int, str]]) -> None:
    """Whatever became of messages with an unknown outcome, the next that is stored is right."""
    outbox, ids, bus = Outbox(), set[str](), dict[str, Fact]()

    def send(fact: Fact, outcome: str) -> bool:
        if outcome != "lost" and message_id(fact) not in ids:
            ids.add(message_id(fact))
            bus[subject_of(fact)] = fact
        if outcome == "stored":
            outbox.published(fact)
            return True
        outbox.doubt(fact)
        return False

    def publish(fact: Fact | None, revision: int, outcome: str) -> bool:
        key = key_of(claim(0) if is_claim else node(0))
        return all(send(newer, outcome) for newer in outbox.plan(key, fact, revision))

    fact: Fact | None = None
    for revision, (state, outcome) in enumerate(changes, 1):
        if is_claim:
            fact = claim(revision, "ab"[state % 2]) if state else None
        else:
            fact = node(revision, cpu=state % 2) if state else None
        publish(fact, revision, outcome)
    assert publish(fact, len(changes) + 1, "stored")

    living = [one for one in bus.values() if not one.deleted]
    expected = [] if fact is None else [msgspec.structs.replace(fact, revision=0)]
    assert [msgspec.structs.replace(one, revision=0) for one in living] == expected


def listed(resource: Resource, revision: int, *objects: Object) -> ObjectCache:
    """A cache whose watch of a kind has shown everything up to a revision."""
    cache = ObjectCache()
    cache.apply(resource, Listed(objects, revision))
    return cache


def claim_object(revision: int) -> Object:
    metadata = {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": str(revision)}
    return {"metadata": metadata, "spec": {}}


@pytest.mark.parametrize(
    ("cache", "fact", "is_behind"),
    [
        (listed(CLAIMS, 5), claim(5), False),
        (listed(CLAIMS, 4), claim(5), True),
        (listed(CLAIMS, 4, claim_object(3)), claim(5), True),
        (listed(CLAIMS, 4, claim_object(5)), claim(5), False),
        (listed(CLAIMS, 4, claim_object(3)), gone(claim(3), 5), True),
        (listed(CLAIMS, 5, claim_object(3)), gone(claim(3), 5), False),
        (listed(CLAIMS, 4), gone(claim(3), 5), False),
    ],
    ids=[
        "deleted since",
        "not shown yet",
        "an older version",
        "a response to an own write",
        "deleted meanwhile",
        "made again",
        "gone here, too",
    ],
)
def test_a_watch_is_behind_what_was_published(cache, fact, is_behind) -> None:
    assert kind_behind(cache, key_of(fact), fact) == (CLAIMS if is_behind else None)


def test_a_fact_of_several_objects_may_be_newer_than_its_own() -> None:
    obj = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "3"}}
    known, observed = listed(NODES, 4, obj), node(9)
    same = msgspec.structs.replace(observed, node=known.nodes["n"])
    used = msgspec.structs.replace(same.node, used_pods=7, pool="p")
    assert kind_behind(known, key_of(same), msgspec.structs.replace(same, node=used)) is None
    assert kind_behind(listed(NODES, 4), key_of(observed), observed) == NODES


@pytest.mark.parametrize("change", [{"unschedulable": True}, {"labels": {"a": "b"}}, {"uid": "v"}])
def test_the_watch_of_nodes_is_behind_a_fact_that_says_something_else(change: Object) -> None:
    obj = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "3"}}
    known, observed = listed(NODES, 4, obj), node(9)
    changed = msgspec.structs.replace(known.nodes["n"], **change)
    fact = msgspec.structs.replace(observed, node=changed)
    assert kind_behind(known, key_of(fact), fact) == NODES
    assert kind_behind(listed(NODES, 9, obj), key_of(fact), fact) is None


def test_the_watch_of_slices_is_behind_a_fact_with_other_devices() -> None:
    spec = {"driver": "d", "pool": {"name": "n", "generation": 1}, "devices": [{"name": "gpu-0"}]}
    obj = {"metadata": {"name": "s", "uid": "u", "resourceVersion": "3"}, "spec": spec}
    known = listed(SLICES, 4, obj)
    observed, _ = known.devices.slices["s"]
    same = SliceObserved(revision=9, slice=observed)
    assert kind_behind(known, key_of(same), same) is None
    less = msgspec.structs.replace(observed, devices=())
    fact = SliceObserved(revision=9, slice=less)
    assert kind_behind(known, key_of(fact), fact) == SLICES
    assert kind_behind(known, key_of(fact), msgspec.structs.replace(fact, revision=4)) is None


def test_the_watch_of_nodes_is_behind_if_an_agent_has_reported_about_a_new_one() -> None:
    report = InventoryObserved(revision=1, node="n", driver="d")
    obj = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "3"}}
    assert kind_behind(listed(NODES, 4), key_of(report), report) == NODES
    assert kind_behind(listed(NODES, 4, obj), key_of(report), report) is None
    ended = gone(report, 2)
    assert kind_behind(listed(NODES, 4), key_of(ended), ended) is None


def test_no_watch_is_behind_a_fact_without_an_object() -> None:
    fact = DomainObserved(revision=9, domain="d", epoch=1)
    assert kind_behind(ObjectCache(), key_of(fact), fact) is None


def test_events_of_the_watch_count_like_a_list() -> None:
    cache = listed(CLAIMS, 4, claim_object(3))
    cache.apply(CLAIMS, Changed(claim_object(6)))
    assert kind_behind(cache, key_of(claim(6)), claim(6)) is None
    other = msgspec.structs.replace(claim(5), claim=Claim("v", "ns", "d", 5, "a", ClaimSpec()))
    assert kind_behind(cache, key_of(other), other) is None
    cache.apply_response(CLAIMS, claim_object(9))
    newer = msgspec.structs.replace(other, revision=8)
    newer = msgspec.structs.replace(
        newer, claim=msgspec.structs.replace(other.claim, resource_version=8)
    )
    assert kind_behind(cache, key_of(newer), newer) == CLAIMS
