"""The real door against a server that fails in every way a real one does."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dray.domain.errors import InvalidInputError
from dray.kube.api import KubeApi, connect
from dray.kube.ports import (
    PODS,
    AlreadyExistsError,
    Changed,
    ConflictError,
    Deleted,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    RefusedError,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


def status(code: int, reason: str = "", message: str = "no", **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


def pod(name: str, revision: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(revision)}}


def listing(revision: int, *names: str, token: str = "") -> web.Response:
    metadata = {"resourceVersion": str(revision), "continue": token}
    return web.json_response({"metadata": metadata, "items": [pod(n, revision) for n in names]})


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


class Script:
    """Answers lists and watches as told, in order, and notes what was asked."""

    def __init__(self) -> None:
        self.lists: list[web.Response] = []
        self.watches: list[web.Response | list[bytes]] = []
        self.asked: list[dict[str, str]] = []
        self.idle = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if query.get("watch") != "true":
            return self.lists.pop(0)
        self.asked.append(query)
        answer = self.watches.pop(0) if self.watches else []
        if isinstance(answer, web.Response):
            return answer
        response = web.StreamResponse()
        await response.prepare(request)
        for part in answer:
            await response.write(part)
        if not self.watches and not answer:
            self.idle.set()
            await asyncio.Event().wait()
        return response


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Callable[[Handler], Awaitable[KubeApi]]]:
    runners: list[web.AppRunner] = []
    apis: list[KubeApi] = []

    async def serve(handler: Handler, readyz: int = 200) -> KubeApi:
        async def ready(_: web.Request) -> web.Response:
            return web.Response(status=readyz)

        app = web.Application()
        app.router.add_route("GET", "/readyz", ready)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        apis.append(await connect(str(kubeconfig(tmp_path, url)), user_agent="dray-test"))
        return apis[-1]

    yield serve
    for api in apis:
        await api.close()
    for runner in runners:
        await runner.cleanup()


def kubeconfig(directory: Path, url: str) -> Path:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(404, "NotFound"), NotFoundError),
        (status(409, "AlreadyExists"), AlreadyExistsError),
        (status(409, "Conflict"), ConflictError),
        (status(422, "Invalid"), RefusedError),
        (status(403, "Forbidden"), RefusedError),
        (status(400, "BadRequest"), RefusedError),
        (status(401, "Unauthorized"), RefusedError),
        (status(429, "TooManyRequests"), KubeUnavailableError),
        (status(500, "InternalError"), KubeUnavailableError),
        (status(503, "ServiceUnavailable"), KubeUnavailableError),
        (web.Response(status=502, text="bad gateway"), KubeUnavailableError),
    ],
)
async def test_a_failure_is_what_its_code_and_reason_say(served, answer, error) -> None:
    async def handle(_: web.Request) -> web.Response:
        return answer

    api = await served(handle)
    with pytest.raises(error, match=r"GET /api/v1/namespaces/n/pods/p: (no|bad gateway)") as caught:
        await api.get(PODS, "p", "n")
    assert type(caught.value) is error


async def test_what_the_server_asks_to_wait_is_passed_on(served) -> None:
    async def handle(_: web.Request) -> web.Response:
        return status(429, "TooManyRequests", **{"Retry-After": "7"})

    api = await served(handle)
    with pytest.raises(KubeUnavailableError) as caught:
        await api.get(PODS, "p", "n")
    assert caught.value.retry_after_s == 7


async def test_a_refusal_carries_its_code(served) -> None:
    async def handle(_: web.Request) -> web.Response:
        return status(403, "Forbidden", "pods is forbidden")

    api = await served(handle)
    with pytest.raises(RefusedError, match="pods is forbidden") as caught:
        await api.list(PODS)
    assert caught.value.status == 403


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    api = await connect(str(kubeconfig(tmp_path, "http://127.0.0.1:1")), user_agent="dray-test")
    with pytest.raises(KubeUnavailableError, match="no answer from the API server"):
        await api.version()
    await api.close()


async def test_a_connection_cut_in_an_answer_is_unavailable(served) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    api = await served(handle)
    with pytest.raises(KubeUnavailableError):
        await api.get(PODS, "p", "n")


async def test_requests_carry_the_token_and_the_agent(served) -> None:
    seen: dict[str, str] = {}

    async def handle(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return web.json_response({"gitVersion": "v1"})

    api = await served(handle)
    await api.version()
    assert seen["Authorization"] == "Bearer secret"
    assert seen["User-Agent"] == "dray-test"


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"nothing.*KUBECONFIG"):
        await connect(str(tmp_path / "nothing"), user_agent="dray-test")


async def test_an_eviction_against_a_budget_conflicts(served) -> None:
    async def handle(_: web.Request) -> web.Response:
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        return status(429, "TooManyRequests", message)

    api = await served(handle)
    with pytest.raises(ConflictError, match="disruption budget"):
        await api.evict("p", "n")


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


async def test_a_watch_outlives_a_server_that_is_away(served) -> None:
    script = Script()
    script.lists = [status(503), status(500), listing(5)]
    script.watches = [status(429), [line("ADDED", pod("a", 7))]]
    api = await served(script.answer)
    async with asyncio.timeout(20), aclosing(api.watch(PODS)) as watch:
        assert isinstance(await anext(watch), Listed)
        assert isinstance(await anext(watch), Changed)


@pytest.mark.parametrize("code", [401, 403])
async def test_who_is_not_allowed_while_the_server_starts_may_be_so_soon(served, code) -> None:
    """kube-apiserver serves before it has read its roles, and words that like a true refusal."""

    async def handle(_: web.Request) -> web.Response:
        return status(code, "Forbidden", "pods is forbidden")

    api = await served(handle, readyz=500)
    with pytest.raises(KubeUnavailableError, match=r"pods is forbidden \(the API server is start"):
        await api.list(PODS)


async def test_where_nobody_may_ask_a_server_that_was_never_away_means_what_it_says(
    served,
) -> None:
    async def handle(_: web.Request) -> web.Response:
        return status(403, "Forbidden", "pods is forbidden")

    api = await served(handle, readyz=403)
    with pytest.raises(RefusedError, match="pods is forbidden"):
        await api.list(PODS)


async def test_where_nobody_may_ask_a_server_that_went_away_is_taken_for_one_that_starts(
    served, monkeypatch
) -> None:
    away = True

    async def handle(request: web.Request) -> web.Response:
        if away and request.transport is not None:
            request.transport.abort()
        return status(403, "Forbidden", "pods is forbidden")

    api = await served(handle, readyz=403)
    with pytest.raises(KubeUnavailableError, match="no answer"):
        await api.list(PODS)
    away = False

    with pytest.raises(KubeUnavailableError, match="the API server is starting"):
        await api.list(PODS)
    monkeypatch.setattr("dray.kube.api_transport._STARTS_WITHIN_S", 0.0)
    with pytest.raises(RefusedError):
        await api.list(PODS)


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
