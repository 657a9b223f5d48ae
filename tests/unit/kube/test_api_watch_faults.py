"""A list or watch of the real adapter continues after every fault of the server."""

import asyncio
import socket
from contextlib import aclosing

import pytest
from aiohttp import web
from tests.unit.kube.faulty_server import Script, line, listing, pod, status

from dray.kube.ports import (
    PODS,
    Changed,
    Deleted,
    KubeUnavailableError,
    Listed,
    RefusedError,
)

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


async def test_a_list_begins_again_when_its_pages_expire(served) -> None:
    script = Script()
    script.lists = [
        listing(5, "a", token="more"),
        status(410, "Expired"),
        listing(6, "b", token="more"),
        listing(6, "c"),
    ]
    api = await served(script.answer)
    listed = await api.list(PODS)
    assert [obj["metadata"]["name"] for obj in listed.objects] == ["b", "c"]
    assert listed.resource_version == 6


async def test_a_watch_that_ends_early_goes_on_where_it_was(served) -> None:
    script = Script()
    script.lists = [listing(5)]
    script.watches = [
        [line("ADDED", pod("a", 7))],
        [line("BOOKMARK", pod("", 20))],
        [line("DELETED", pod("a", 21))],
    ]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(3)]
    assert [type(event) for event in events] == [Listed, Changed, Deleted]
    assert [asked["resourceVersion"] for asked in script.asked] == ["5", "7", "20"]
    assert all(asked["allowWatchBookmarks"] == "true" for asked in script.asked)
    assert all(240 <= int(asked["timeoutSeconds"]) <= 480 for asked in script.asked)


@pytest.mark.parametrize("answer", [status(410, "Expired"), [line("ERROR", GONE)]])
async def test_a_watch_lists_again_when_its_place_is_gone(served, answer) -> None:
    script = Script()
    script.lists = [listing(5, "a"), listing(50, "b")]
    script.watches = [answer, [line("ADDED", pod("c", 51))]]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(3)]
    assert [type(event) for event in events] == [Listed, Listed, Changed]
    assert script.asked[1]["resourceVersion"] == "50"


@pytest.mark.parametrize(("store", "expected"), [(19, Listed), (20, Changed)])
async def test_a_watch_lists_again_when_the_store_was_restored(served, store, expected) -> None:
    """A watch would leave out that objects are gone which the backup lacks."""
    script = Script()
    script.lists = [listing(5, "a"), listing(19, "b")]
    away = status(503, "ServiceUnavailable")
    script.watches = [[line("ADDED", pod("c", 20))], away, [line("ADDED", pod("d", 21))]]
    script.store = listing(store)
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(3)]
    assert [type(event) for event in events] == [Listed, Changed, expected]
    older = [event.is_older for event in events if isinstance(event, Listed)]
    assert older == ([False, True] if expected is Listed else [False])


async def test_all_watches_list_again_when_one_found_the_store_restored(served) -> None:
    """The server may have passed the revision of the second before that one looks."""
    script = Script()
    script.lists = [listing(5, "a"), listing(40, "b"), listing(20, "a"), listing(30, "b")]
    away = status(503, "ServiceUnavailable")
    script.watches = [away]
    script.store = listing(20)
    api = await served(script.answer)
    async with (
        asyncio.timeout(20),
        aclosing(api.watch(PODS)) as first,
        aclosing(api.watch(PODS)) as second,
    ):
        assert [one["metadata"]["name"] for one in (await anext(first)).objects] == ["a"]
        assert [one["metadata"]["name"] for one in (await anext(second)).objects] == ["b"]
        assert (await anext(second)).is_older
        script.store = listing(45)
        assert (await anext(first)).is_older


IDENTITY = pod("x", 7)["metadata"]
NAMELESS = [
    {},
    {"metadata": None},
    {"metadata": {"name": "x", "resourceVersion": "7"}},
    {"metadata": IDENTITY | {"namespace": None}},
    {"metadata": IDENTITY | {"namespace": 7}},
    {"metadata": IDENTITY | {"resourceVersion": "9" * 5000}},
    "x",
]
NO_LISTS = [
    {"kind": "Status", "metadata": {}, "status": "Success"},
    pod("a", 5),
    {"metadata": {}, "items": []},
    {"metadata": {"resourceVersion": ""}, "items": []},
    {"metadata": {"resourceVersion": "9" * 5000}, "items": []},
    {"items": []},
]


@pytest.mark.parametrize("answer", NO_LISTS)
async def test_a_watch_outlives_an_answer_that_is_no_list(served, answer) -> None:
    """Nor is it taken for a list of nothing."""
    script = Script()
    script.lists = [web.json_response(answer), listing(5, "a")]
    api = await served(script.answer)
    async with asyncio.timeout(60), aclosing(api.watch(PODS)) as watch:
        listed = await anext(watch)
    assert isinstance(listed, Listed)
    assert [obj["metadata"]["name"] for obj in listed.objects] == ["a"]


async def test_a_page_that_names_itself_as_the_next_one_ends_a_list(served) -> None:
    script = Script()
    script.lists = [listing(5, "a", token="more"), listing(5, "b", token="more")]
    with pytest.raises(KubeUnavailableError, match="not the next page of a list"):
        await (await served(script.answer)).list(PODS)


@pytest.mark.parametrize("managed", [7, "x", {"a": 1}, [7, None, {"fieldsV1": {}}]])
async def test_managed_fields_of_any_shape_hide_no_object(served, managed) -> None:
    script = Script()
    odd = {"metadata": IDENTITY | {"managedFields": managed}}
    script.lists = [web.json_response({"metadata": {"resourceVersion": "5"}, "items": [odd]})]
    listed = await (await served(script.answer)).list(PODS)
    assert [obj["metadata"]["name"] for obj in listed.objects] == ["x"]
    assert listed.is_whole


@pytest.mark.parametrize("bookmark", [{}, {"metadata": None}, {"metadata": {}}])
async def test_a_watch_outlives_a_bookmark_of_nowhere(served, bookmark) -> None:
    script = Script()
    script.lists = [listing(5)]
    script.watches = [[line("BOOKMARK", bookmark), line("ADDED", pod("b", 9))]]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(2)]
    assert [type(event) for event in events] == [Listed, Changed]


@pytest.mark.parametrize("nameless", NAMELESS)
async def test_an_object_that_nobody_can_tell_hides_no_other_of_a_list(served, nameless) -> None:
    script = Script()
    items = [pod("a", 1), nameless, pod("b", 2)]
    script.lists = [web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})]
    listed = await (await served(script.answer)).list(PODS)
    assert [obj["metadata"]["name"] for obj in listed.objects] == ["a", "b"]
    assert not listed.is_whole


@pytest.mark.parametrize("nameless", NAMELESS[:-1])
async def test_an_object_that_nobody_can_tell_does_not_end_a_watch(served, nameless) -> None:
    script = Script()
    script.lists = [listing(5)]
    script.watches = [[line("ADDED", nameless), line("ADDED", pod("b", 9))]]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(2)]
    assert [type(event) for event in events] == [Listed, Changed]


@pytest.mark.parametrize("nonsense", [b"<html>\n", b"[]\n", b"{}\n", b'{"type": "ADDED"}\n'])
async def test_a_watch_outlives_what_is_not_an_event(served, nonsense) -> None:
    """As of a proxy that answers while the API server is away."""
    script = Script()
    script.lists = [listing(5)]
    script.watches = [[nonsense], [line("ADDED", pod("a", 7))]]
    api = await served(script.answer)
    async with asyncio.timeout(60), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(2)]
    assert [type(event) for event in events] == [Listed, Changed]


async def test_a_server_that_goes_without_a_word_is_missed_by_its_watches(served) -> None:
    """A watch may be silent for minutes; the kernel asks whether the server is there."""
    script = Script()
    script.lists = [listing(5)]
    api = await served(script.answer)

    def probed() -> list[int]:
        wires = [
            connection.transport.get_extra_info("socket")
            for connection in api._transport._session.connector._acquired
        ]
        return [wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for wire in wires]

    async with asyncio.timeout(60), aclosing(api.watch(PODS)) as watch:
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        while probed() != [1]:  # noqa: ASYNC110 - a condition elsewhere
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_watch_outlives_a_server_that_is_away(served) -> None:
    script = Script()
    script.lists = [status(503), status(500), listing(5)]
    script.watches = [status(429), [line("ADDED", pod("a", 7))]]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        assert isinstance(await anext(watch), Listed)
        assert isinstance(await anext(watch), Changed)


async def test_a_watch_waits_for_a_kind_that_is_not_served_yet(served) -> None:
    script = Script()
    script.lists = [status(404, "NotFound"), listing(5)]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        assert isinstance(await anext(watch), Listed)


async def test_a_watch_that_stays_forbidden_says_so(served, monkeypatch) -> None:
    monkeypatch.setattr("dray.kube.api_watch.PATIENCE_S", 0.0)
    script = Script()
    script.lists = [status(403, "Forbidden", "may not list pods")]
    api = await served(script.answer)
    with pytest.raises(RefusedError, match="may not list pods"):
        await anext(api.watch(PODS))


async def test_a_watch_outlives_a_server_that_has_not_read_its_roles_yet(served) -> None:
    script = Script()
    script.lists = [status(403, "Forbidden", "may not list pods"), listing(5)]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        assert isinstance(await anext(watch), Listed)


async def test_a_watch_that_was_let_in_outlives_a_server_that_forgets_its_roles(served) -> None:
    """kube-apiserver answers 403 to everybody until it has read its roles after a restart."""
    script = Script()
    script.lists = [listing(5, "a")]
    script.watches = [status(403, "Forbidden"), [line("ADDED", pod("b", 6))]]
    api = await served(script.answer)
    async with aclosing(api.watch(PODS)) as events:
        assert isinstance(await anext(events), Listed)
        added = await asyncio.wait_for(anext(events), 10)
    assert isinstance(added, Changed)
    assert added.object["metadata"]["name"] == "b"


async def test_lines_may_be_split_anywhere_and_joined(served) -> None:
    both = line("ADDED", pod("a", 6)) + line("ADDED", pod("b" * 200_000, 7))
    script = Script()
    script.lists = [listing(5)]
    script.watches = [[both[:17], both[17:90], both[90:]], []]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        await anext(watch)
        names = [(await anext(watch)).object["metadata"]["name"] for _ in range(2)]
    assert names == ["a", "b" * 200_000]


async def test_an_error_in_a_watch_other_than_410_is_resumed(served) -> None:
    script = Script()
    script.lists = [listing(5)]
    script.watches = [
        [line("ADDED", pod("a", 6)), line("ERROR", {"code": 500, "message": "broken"})],
        [line("ADDED", pod("b", 7))],
    ]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        events = [await anext(watch) for _ in range(3)]
    assert [e.object["metadata"]["name"] for e in events[1:]] == ["a", "b"]
    assert script.asked[1]["resourceVersion"] == "6"
