"""A node-agent's token becomes a NATS user with the rights of the node that Kubernetes names."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dray.api.errors import InvalidInputError
from dray.bus.memory import MemoryBus
from dray.bus.ports import Request
from dray.kube.ports import KubeUnavailableError, RefusedError
from dray.runtime.clock import ManualClock
from dray_claim_controller.identities.server import IdentityServer
from dray_claim_controller.identities.signing import AccountKey, new_seed

USER = "system:serviceaccount:dray-system:dray-node-agent"
AUDIENCE = "dray-nats"
NOW = 1_700_000_000
NODE_NAME = "authentication.kubernetes.io/node-name"


def changed(seed: str) -> str:
    """Another letter in the middle, which the checksum shows."""
    return seed[:20] + ("B" if seed[20] == "A" else "A") + seed[21:]


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt(claims: dict[str, Any]) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}.c2ln"


def claims_of(text: str) -> dict[str, Any]:
    body = text.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def request(token: str = "", **options: Any) -> Request:
    claims = {
        "nats": {
            "server_id": {"id": "SERVER"},
            "user_nkey": "UKEY",
            "connect_opts": {"auth_token": token, **options},
        }
    }
    return Request("$SYS.REQ.USER.AUTH", jwt(claims).encode())


class Reviews:
    """An API server that answers TokenReviews with what a test says."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.status: dict[str, Any] = {}
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def create(self, resource: Any, obj: Any, *args: Any, **more: Any) -> Any:
        assert resource.plural == "tokenreviews"
        self.asked.append(obj["spec"])
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return {**obj, "status": self.status}


class Callout:
    def __init__(self) -> None:
        self.kube = Reviews()
        self.key = AccountKey(new_seed())
        self.clock = ManualClock(NOW)
        self.server = IdentityServer(
            MemoryBus(),
            self.kube,  # type: ignore[arg-type]
            self.clock,
            key=self.key,
            user=USER,
            audience=AUDIENCE,
            lifetime_s=3600.0,
        )

    async def answer(self, asked: Request) -> dict[str, Any]:
        answer = await self.server.answer(asked)
        assert answer is not None
        return claims_of(answer.decode())["nats"]


@pytest.fixture
def callout() -> Callout:
    return Callout()


def confirmed(node: str = "gpu.node-1", **fields: Any) -> dict[str, Any]:
    user = {"username": USER, "extra": {NODE_NAME: [node]}, **fields}
    return {"authenticated": True, "audiences": [AUDIENCE], "user": user}


async def test_a_confirmed_token_gets_the_rights_of_its_node(callout: Callout) -> None:
    callout.kube.status = confirmed()
    token = jwt({"exp": NOW + 7200})
    user = claims_of((await callout.answer(request(token)))["jwt"])
    assert callout.kube.asked == [{"token": token, "audiences": [AUDIENCE]}]
    assert (user["aud"], user["sub"], user["name"]) == ("NODE_AGENT", "UKEY", "gpu.node-1")
    assert user["nats"]["sub"]["allow"] == ["_INBOX.gpu_node-1.>"]
    assert user["nats"]["pub"]["allow"] == [
        "dray.evt.claim.prepared.v1.gpu_node-1.*",
        "dray.input.node-agent.v1.gpu_node-1",
        "dray.usage.gpus.v1.gpu_node-1",
        "dray.rpc.inventory.gpu_node-1",
        "dray.rpc.reading.node-agent.gpu_node-1",
        "dray.js.CONSUMER.MSG.NEXT.DRAY_FACTS.*",
    ]


async def test_connections_that_waited_too_long_are_not_reviewed_any_more(callout: Callout) -> None:
    callout.kube.status = confirmed()
    callout.kube.answers.clear()
    token = jwt({"exp": NOW + 7200})
    asked = [asyncio.create_task(callout.answer(request(token))) for _ in range(100)]
    await asyncio.sleep(0)  # All of them begin.
    assert len(callout.kube.asked) == 16
    await callout.clock.advance(4.0)
    callout.kube.answers.set()
    answers = await asyncio.gather(*asked)
    assert sum("jwt" in answer for answer in answers) == len(callout.kube.asked) == 16
    assert "jwt" in await callout.answer(request(token))


async def test_of_a_flood_of_connections_the_newest_is_reviewed_first(callout: Callout) -> None:
    """In a queue it would wait until NATS has ended it, as would all after it."""
    callout.kube.status = confirmed()
    callout.kube.answers.clear()
    old, new = jwt({"exp": NOW + 7200}), jwt({"exp": NOW + 7201})
    flood = [asyncio.create_task(callout.answer(request(old))) for _ in range(100)]
    await asyncio.sleep(0)
    await callout.clock.advance(2.0)
    asked = asyncio.create_task(callout.answer(request(new)))
    await asyncio.sleep(0)
    callout.kube.answers.set()
    assert "jwt" in await asked
    assert [one["token"] for one in callout.kube.asked[:17]] == [old] * 16 + [new]
    assert all("jwt" in answer for answer in await asyncio.gather(*flood))


async def test_who_missed_its_turn_and_is_cancelled_then_gives_none_away(callout: Callout) -> None:
    callout.kube.status = confirmed()
    callout.kube.answers.clear()
    token = jwt({"exp": NOW + 7200})
    flood = [asyncio.create_task(callout.answer(request(token))) for _ in range(17)]
    await asyncio.sleep(0)
    await callout.clock.advance(4.0)
    late = asyncio.create_task(callout.answer(request(token)))
    asyncio.get_running_loop().call_soon(
        flood[16].cancel
    )  # after it has missed its turn, before it notices
    await asyncio.sleep(0.01)
    more = [asyncio.create_task(callout.answer(request(token))) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert len(callout.kube.asked) == 16
    for one in (*flood, late, *more):
        one.cancel()
    await asyncio.gather(*flood, late, *more, return_exceptions=True)


async def test_a_flood_leaves_nobody_who_waits_longer_than_nats_does(callout: Callout) -> None:
    callout.kube.status = confirmed()
    callout.kube.answers.clear()
    token = jwt({"exp": NOW + 7200})
    flood = []
    for _ in range(10):
        flood += [asyncio.create_task(callout.answer(request(token))) for _ in range(50)]
        await asyncio.sleep(0)
        await callout.clock.advance(1.0)
    await asyncio.sleep(0)
    assert sum(not one.done() for one in flood) == 16 + 4 * 50
    refused = [one.result() for one in flood if one.done()]
    assert all("before its token's turn" in one["error"] for one in refused)
    for one in flood:
        one.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_connection_that_is_given_up_leaves_its_turn_to_another(callout: Callout) -> None:
    callout.kube.status = confirmed()
    callout.kube.answers.clear()
    token = jwt({"exp": NOW + 7200})
    asked = [asyncio.create_task(callout.answer(request(token))) for _ in range(50)]
    await asyncio.sleep(0)
    for number in (*range(8), 48, 49):  # eight under review, and the two that are next
        asked[number].cancel()
    await asyncio.sleep(0)
    asked[45].cancel()  # its turn has come, and it has not begun
    callout.kube.answers.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, asyncio.CancelledError) for one in answers) == 11
    assert sum("jwt" in one for one in answers if isinstance(one, dict)) == 39
    assert "jwt" in await callout.answer(request(token))


@pytest.mark.parametrize(
    ("token_ends", "user_ends"), [(NOW + 7200, NOW + 3600), (NOW + 60, NOW + 60)]
)
async def test_a_user_ends_with_its_token_and_after_an_hour_at_most(
    callout: Callout, token_ends: int, user_ends: int
) -> None:
    callout.kube.status = confirmed()
    answer = await callout.answer(request(jwt({"exp": token_ends})))
    assert claims_of(answer["jwt"])["exp"] == user_ends


async def test_a_user_of_a_token_that_is_not_a_jwt_has_ended_already(callout: Callout) -> None:
    """An end of zero would be none at all."""
    callout.kube.status = confirmed()
    answer = await callout.answer(request("a-static-token"))
    assert "when it ends" in answer["error"]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({}, "not valid"),
        ({"authenticated": False, "error": "expired"}, "expired"),
        ({**confirmed(), "audiences": []}, "not for dray-nats"),
        ({**confirmed(), "audiences": ["https://kubernetes.default.svc"]}, "not for dray-nats"),
        (confirmed(username="system:serviceaccount:default:x"), "only 'system:serviceaccount"),
        (confirmed(extra={}), "bound to no node"),
        (confirmed(extra={NODE_NAME: []}), "bound to no node"),
        (confirmed(extra={NODE_NAME: ["a", "b"]}), "bound to no node"),
        (confirmed(node=""), "bound to no node"),
        (confirmed(node="*"), "not the name of a Node"),
        (confirmed(node="a.>"), "not the name of a Node"),
        (confirmed(node="a_b"), "not the name of a Node"),
    ],
)
async def test_whom_kubernetes_does_not_vouch_for_gets_no_user(
    callout: Callout, status: dict[str, Any], why: str
) -> None:
    callout.kube.status = status
    answer = await callout.answer(request(jwt({"exp": NOW + 7200})))
    assert why in answer["error"]
    assert "jwt" not in answer


async def test_a_connection_without_a_token_is_refused_without_a_review(callout: Callout) -> None:
    answer = await callout.answer(request(user="node-agent", **{"pass": "guess"}))
    assert "has no token" in answer["error"]
    assert callout.kube.asked == []


@pytest.mark.parametrize("error", [KubeUnavailableError("away"), RefusedError("forbidden", 403)])
async def test_a_review_that_fails_refuses_the_connection(
    callout: Callout, error: Exception
) -> None:
    callout.kube.error = error
    answer = await callout.answer(request(jwt({"exp": NOW + 7200})))
    assert str(error) in answer["error"]


@pytest.mark.parametrize(
    "payload", [b"", b"a.b.c", b"\xff", jwt({}).encode(), jwt({"nats": 1}).encode()]
)
async def test_what_is_not_a_request_of_a_server_is_left_out(
    callout: Callout, payload: bytes
) -> None:
    assert await callout.server.answer(Request("$SYS.REQ.USER.AUTH", payload)) is None


async def test_answers_are_signed_by_the_issuer(callout: Callout) -> None:
    callout.kube.status = confirmed()
    answer = await callout.server.answer(request(jwt({"exp": NOW + 7200})))
    assert answer is not None
    text, _, signature = answer.decode().rpartition(".")
    claims = claims_of(answer.decode())
    assert (claims["iss"], claims["aud"], claims["sub"]) == (callout.key.public, "SERVER", "UKEY")
    raw = base64.b32decode(callout.key.public)[1:33]
    given = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    Ed25519PublicKey.from_public_bytes(raw).verify(given, text.encode())


def test_a_new_seed_is_one_that_is_read_again() -> None:
    seed = new_seed()
    assert seed.startswith("SA")
    assert AccountKey(seed).public == AccountKey(f" {seed}\n").public
    assert AccountKey(seed).public.startswith("A")


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: "",
        lambda seed: "SA",
        lambda seed: "not base32!",
        lambda seed: seed[1:],
        lambda seed: seed[:-4],
        lambda seed: seed.lower(),
        lambda seed: f"SU{seed[2:]}",
        changed,
    ],
    ids=["empty", "SA", "nonsense", "first", "last", "lower", "user", "changed"],
)
def test_what_is_not_a_seed_of_an_account_is_refused(make: Callable[[str], str]) -> None:
    with pytest.raises(InvalidInputError, match="begin with SA"):
        AccountKey(make(new_seed()))


def test_claims_are_json_that_any_reader_takes() -> None:
    text = AccountKey(new_seed()).signed({"sub": "x"})
    assert msgspec.json.decode(base64.urlsafe_b64decode(text.split(".")[0] + "==")) == {
        "typ": "JWT",
        "alg": "ed25519-nkey",
    }
