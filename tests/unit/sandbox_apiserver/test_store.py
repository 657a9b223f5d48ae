"""The store: versions, history, and what survives a crash."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray_sandbox.apiserver.journal import RequestJournal
from dray_sandbox.apiserver.status import ApiError
from dray_sandbox.apiserver.store import Conflict, Store

PODS = "/pods"


def thing(name: str, value: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name}, "value": value}


def put(store: Store, name: str, value: int = 0) -> dict[str, Any]:
    key = (PODS, "n", name)
    return store.write(key, thing(name, value), store.get(key))


def drop(store: Store, name: str) -> None:
    key = (PODS, "n", name)
    store.write(key, None, store.get(key))


def test_a_writer_that_saw_an_older_object_conflicts() -> None:
    store = Store()
    first = put(store, "a")
    put(store, "a", 1)

    with pytest.raises(Conflict):
        store.write((PODS, "n", "a"), thing("a", 2), first)


def test_every_write_has_the_next_version() -> None:
    store = Store()
    versions = [int(put(store, name)["metadata"]["resourceVersion"]) for name in "abc"]

    assert versions == [2, 3, 4]


def test_a_list_of_the_past_shows_the_past() -> None:
    store = Store()
    put(store, "a", 1)
    put(store, "b", 1)
    then = store.version
    put(store, "a", 2)
    drop(store, "b")
    put(store, "c")

    past = store.items_at(PODS, "", then)

    assert [(item["metadata"]["name"], item["value"]) for item in past] == [("a", 1), ("b", 1)]


def test_the_forgotten_past_is_gone() -> None:
    store = Store(history_size=2)
    for name in "abcd":
        put(store, name)

    assert [change.key[2] for change in store.since(3, PODS)] == ["c", "d"]
    with pytest.raises(ApiError) as caught:
        store.since(2, PODS)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_writes_survive(tmp_path: Path) -> None:
    store = Store(RequestJournal(tmp_path))
    put(store, "a", 1)
    put(store, "b")
    drop(store, "b")
    seen = store.version

    store.close()  # nothing is buffered: this is what a crash leaves behind
    again = Store(RequestJournal(tmp_path))
    again.close()

    assert again.version == seen
    assert [item["value"] for item in again.items(PODS)] == [1]
    assert [change.key[2] for change in again.since(1, PODS)] == ["a", "b", "b"]


def test_a_torn_last_line_is_dropped_and_writing_goes_on(tmp_path: Path) -> None:
    store = Store(RequestJournal(tmp_path))
    put(store, "a")
    put(store, "b")
    store.close()
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-10])

    again = Store(RequestJournal(tmp_path))
    put(again, "c")
    again.close()
    third = Store(RequestJournal(tmp_path))
    third.close()

    assert [item["metadata"]["name"] for item in third.items(PODS)] == ["a", "c"]
    assert third.version == again.version


def test_a_crash_between_the_two_files_of_a_compaction_loses_nothing(tmp_path: Path) -> None:
    store = Store(RequestJournal(tmp_path), history_size=1)
    for value in range(5):
        put(store, "a", value)
    store.close()
    old_journal = (tmp_path / "journal.jsonl").read_bytes()
    Store(RequestJournal(tmp_path), history_size=1).close()
    (tmp_path / "journal.jsonl").write_bytes(old_journal)

    again = Store(RequestJournal(tmp_path), history_size=1)
    again.close()

    assert [item["value"] for item in again.items(PODS)] == [4]
    assert again.version == store.version


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), min_size=1, max_size=30
)


@settings(max_examples=40, deadline=None)
@given(steps=steps, history=st.integers(1, 40), restarts=st.integers(1, 3))
def test_any_history_is_the_same_after_restarts(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, bool]],
    history: int,
    restarts: int,
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = Store(RequestJournal(directory), history)
    for name, value, delete in steps:
        if delete and store.get((PODS, "n", name)):
            drop(store, name)
        else:
            put(store, name, value)
    expected = store.items(PODS)
    version, compacted = store.version, store.compacted
    for _ in range(restarts):
        store.close()
        store = Store(RequestJournal(directory), history)
    store.close()

    assert store.items(PODS) == expected
    assert (store.version, store.compacted) == (version, compacted)
