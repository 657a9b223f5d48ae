"""The real adapter against a server that fails in every way a real one does."""

from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.kube.faulty_server import kubeconfig, status

from dray.api.errors import InvalidInputError
from dray.kube.api import connect
from dray.kube.ports import (
    PODS,
    AlreadyExistsError,
    ConflictError,
    KubeUnavailableError,
    NotFoundError,
    NotServedError,
    RefusedError,
)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(404, "NotFound", name="p"), NotFoundError),
        (status(404, "NotFound"), NotServedError),
        (web.Response(status=404, text="no page"), NotServedError),
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


@pytest.mark.parametrize(
    "details", ["x", ["x"], [{"@type": "x"}], {"causes": "x"}, {"causes": ["x", None]}]
)
async def test_a_failure_may_have_details_of_a_proxy(served, details) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.json_response({"message": "no", "details": details}, status=503)

    api = await served(handle)
    with pytest.raises(KubeUnavailableError, match="no"):
        await api.get(PODS, "p", "n")


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


async def test_an_answer_that_is_not_an_object_is_unavailable(served) -> None:
    """Such as the page that a proxy answers with."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    api = await served(handle)
    with pytest.raises(KubeUnavailableError, match="not a JSON object"):
        await api.get(PODS, "p", "n")


@pytest.mark.parametrize("text", ["", "{}", '{"kind":"Status","metadata":{},"status":"Success"}'])
async def test_an_answer_that_is_another_thing_is_unavailable(served, text) -> None:
    """Who changed an object would take it for what the object is now."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="application/json")

    api = await served(handle)
    pod = {"metadata": {"name": "p", "namespace": "n"}}
    for asked in (api.get(PODS, "p", "n"), api.patch(PODS, "p", {}, "n"), api.update(PODS, pod)):
        with pytest.raises(KubeUnavailableError, match="the answer is no Pod"):
            await asked


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
        await api.evict("p", "n", uid="u")


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
