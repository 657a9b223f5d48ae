"""How Kubernetes says which node a service account's token is bound to."""

import asyncio
from typing import Any

import pytest

NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


async def node(api: Any) -> dict[str, Any]:
    return dict(await api.create("nodes", {"metadata": {"name": api.unique("node")}}))


async def token(api: Any, bound: dict[str, Any] | None = None, **fields: Any) -> str:
    """Of the service account ``agent``, which is made for it."""
    path = api.path("serviceaccounts", "agent", "token")
    spec = {"audiences": ["bus"], "expirationSeconds": 600, **fields}
    if bound is not None:
        metadata = bound["metadata"]
        spec["boundObjectRef"] = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await api.call("POST", path, body)
    return str(answer["status"]["token"])


async def review(api: Any, text: str, audience: str = "bus") -> dict[str, Any]:
    spec = {"token": text, "audiences": [audience]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    return dict((await api.call("POST", REVIEWS, body))["status"])


@pytest.fixture
async def agents(api: Any) -> Any:
    await api.create("serviceaccounts", {"metadata": {"name": "agent"}})
    return api


async def test_a_token_that_is_requested_for_a_node_names_it(agents: Any) -> None:
    made = await node(agents)
    status = await review(agents, await token(agents, made))
    assert status["authenticated"] is True
    assert status["audiences"] == ["bus"]
    user = status["user"]
    assert user["username"] == f"system:serviceaccount:{agents.namespace}:agent"
    assert user["extra"][NODE_NAME] == [made["metadata"]["name"]]
    assert user["extra"][NODE_UID] == [made["metadata"]["uid"]]


async def test_a_token_of_no_node_names_none(agents: Any) -> None:
    status = await review(agents, await token(agents))
    assert status["authenticated"] is True
    assert NODE_NAME not in status["user"].get("extra", {})


async def test_a_token_is_confirmed_for_its_audience_alone(agents: Any) -> None:
    text = await token(agents, await node(agents))
    for audience in ("https://kubernetes.default.svc", "another"):
        status = await review(agents, text, audience)
        assert not status.get("authenticated")
        assert status["error"]


async def test_a_token_ends_with_its_node(agents: Any) -> None:
    made = await node(agents)
    text = await token(agents, made)
    name = made["metadata"]["name"]
    await agents.call("DELETE", agents.path("nodes", name))
    async with asyncio.timeout(60):  # kube-apiserver looks into its cache of nodes
        while (await review(agents, text)).get("authenticated"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    again = await agents.create("nodes", {"metadata": {"name": name}})
    assert not (await review(agents, text)).get("authenticated")
    assert (await review(agents, await token(agents, again)))["authenticated"] is True


async def test_no_token_is_made_for_another_node_of_the_same_name(
    agents: Any, refused: Any
) -> None:
    made = await node(agents)
    made["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(refused) as caught:
        await token(agents, made)
    assert caught.value.code == 409


async def test_no_token_is_made_for_a_node_or_an_account_that_is_not_there(
    agents: Any, refused: Any
) -> None:
    gone = {"metadata": {"name": "nowhere", "uid": ""}}
    with pytest.raises(refused) as caught:
        await token(agents, gone)
    assert caught.value.code == 404
    await agents.call("DELETE", agents.path("serviceaccounts", "agent"))
    with pytest.raises(refused) as caught:
        await token(agents, await node(agents))
    assert caught.value.code == 404


@pytest.mark.parametrize("text", ["nonsense", "e30.e30.e30", "a.b.c"])
async def test_an_invalid_token_is_not_confirmed(api: Any, text: str) -> None:
    status = await review(api, text)
    assert not status.get("authenticated")
    assert status["error"]
