"""A view with look-ups: what was looked up comes first, and making it visits no pool."""

from collections.abc import Iterator
from typing import Any, Never

from hypothesis import given
from hypothesis import strategies as st

from dray.api.pods import Pool
from dray.messages.facts import PoolObserved
from dray.messages.rpc import Lookup, LookupReply
from dray_webhook.decisions.view import DEFAULT_POOL, Overlay, View

KEYS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(st.sampled_from(["put", "drop"]), KEYS, st.integers(1, 3)))


@given(below=st.dictionaries(KEYS, st.integers(1, 3)), steps=STEPS)
def test_an_overlay_is_like_a_changed_copy(below: dict[str, int], steps: list[Any]) -> None:
    before, copy, overlay = dict(below), dict(below), Overlay(below)
    for step, key, value in steps:
        for one in (copy, overlay):
            if step == "put":
                one[key] = value
            else:
                one.pop(key, None)
        assert dict(overlay) == copy
        assert len(overlay) == len(copy)
        assert [key in overlay for key in "abcd"] == [key in copy for key in "abcd"]
    assert below == before


class Unvisited(dict[str, Pool]):
    """Fails if all of it is read."""

    def __iter__(self) -> Iterator[Never]:
        raise AssertionError("all pools are read")

    keys = values = items = copy = __iter__  # type: ignore[assignment]


def test_looking_up_reads_no_other_pool() -> None:
    view = View()
    view.pools = Unvisited()
    for name in ("one", "two"):
        view.apply(PoolObserved(revision=1, pool=Pool(name, name, default=name == "two")))
    named = Lookup(kind="pool", name="three")
    found = view.with_answers({named: LookupReply(pool=Pool("three", "u"))})
    assert found.pools["three"].uid == "u"
    assert found.pools["one"].uid == "one"
    assert [*found.default_pools] == ["two"]
    assert "three" not in view.pools


def test_the_default_pool_is_the_one_that_was_looked_up() -> None:
    view = View()
    view.apply(PoolObserved(revision=1, pool=Pool("one", "one", default=True)))
    demoted = Lookup(kind="pool", name="one")
    found = view.with_answers(
        {
            demoted: LookupReply(pool=Pool("one", "one")),
            DEFAULT_POOL: LookupReply(pool=Pool("two", "two", default=True)),
        }
    )
    assert [*found.default_pools] == ["two"]
    assert [*view.default_pools] == ["one"]
    view.apply(PoolObserved(revision=2, pool=Pool("one", "one"), deleted=True))
    assert not view.default_pools
