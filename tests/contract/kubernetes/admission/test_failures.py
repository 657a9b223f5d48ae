"""Webhooks that fail: time-outs, policies, and configurations that are refused."""

import asyncio
from typing import Any

import aiohttp
import pytest

MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
BROKEN = [{"name": "c", "expression": "object.metadata.annotations['a'] == 'b'"}]
"""A condition that no pod without annotations survives."""


async def test_a_webhook_that_hangs_stops_the_request_after_its_time(
    api: Any, refusal: Any, hook: Any, in_force: Any
) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api, timeoutSeconds=1))
    hook.hang = True

    error = await refusal()

    assert (error.code, error.reason) == (500, "InternalError")
    assert error.message == (
        'Internal error occurred: failed calling webhook "hook.example.com": failed to call '
        f'webhook: Post "{hook.url}?timeout=1s": context deadline exceeded'
    )
    assert await api.names("pods") == []


async def test_a_request_that_takes_longer_than_it_asks_for_is_given_up(
    api: Any, refused: Any, hook: Any, in_force: Any
) -> None:
    """Whatever the webhook does later: nothing is written any more. Kubernetes answers, or ends the
    connection where its filter of late requests comes first."""
    await in_force(api, hook, MUTATING, hook.configuration(api, timeoutSeconds=30))
    hook.hang = True
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    with pytest.raises((refused, aiohttp.ServerDisconnectedError)) as caught:
        await api.create("pods", api.pod("one"), timeout="1.5s")

    assert not isinstance(caught.value, refused) or caught.value.code in (500, 504)
    assert 1.0 < loop.time() - began_s < 10
    hook.hang = False
    await api.create("pods", api.pod("two"), timeout="20.000s")
    assert await api.names("pods") == ["two"]


async def test_a_time_out_that_is_not_a_duration_is_refused(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create("pods", api.pod("one"), timeout="soon")

    assert caught.value.code == 400
    assert "invalid timeout specified in the request URL" in caught.value.message


async def test_a_webhook_that_is_away_is_ignored_where_the_policy_says_so(
    api: Any, hook: Any, in_force: Any
) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api, failurePolicy="Ignore"))
    await hook.stop()

    made = await api.create("pods", api.pod("one"))

    assert made["metadata"]["name"] == "one"


@pytest.mark.parametrize("plural", [MUTATING, VALIDATING])
async def test_a_webhook_that_hangs_is_ignored_where_the_policy_says_so(
    api: Any, hook: Any, in_force: Any, plural: str
) -> None:
    body = hook.configuration(api, failurePolicy="Ignore", timeoutSeconds=1)
    await in_force(api, hook, plural, body)
    hook.hang = True

    made = await api.create("pods", api.pod("one"))

    assert made["metadata"]["name"] == "one"
    assert await api.names("pods") == ["one"]


async def test_a_denial_stands_whatever_the_policy(
    api: Any, refusal: Any, hook: Any, in_force: Any
) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api, failurePolicy="Ignore"))
    hook.response = {"allowed": False, "status": {"message": "no", "code": 422}}

    error = await refusal()

    assert error.code == 422


async def test_a_condition_that_fails_leaves_the_webhook_out_where_the_policy_is_ignore(
    api: Any, hook: Any, in_force: Any
) -> None:
    probe = api.pod("probe")
    probe["metadata"]["annotations"] = {"a": "b"}
    body = hook.configuration(api, failurePolicy="Ignore", matchConditions=BROKEN)
    await in_force(api, hook, MUTATING, body, probe=probe)

    await api.create("pods", api.pod("one"))

    assert hook.requests == []


async def test_a_false_condition_outweighs_one_that_fails(
    api: Any, hook: Any, in_force: Any
) -> None:
    probe = api.pod("probe")
    probe["metadata"] |= {"annotations": {"a": "b"}, "labels": {"gpu": "yes"}}
    labelled = "has(object.metadata.labels) && 'gpu' in object.metadata.labels"
    conditions = [*BROKEN, {"name": "labelled", "expression": labelled}]
    body = hook.configuration(api, matchConditions=conditions)
    await in_force(api, hook, MUTATING, body, probe=probe)

    await api.create("pods", api.pod("one"))

    assert hook.requests == []


async def test_a_patch_that_does_not_apply_stops_the_request(
    api: Any, refusal: Any, hook: Any, in_force: Any
) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api))
    hook.patch = [{"op": "replace", "path": "/metadata/labels/none", "value": "x"}]

    error = await refusal()

    assert (error.code, error.reason) == (500, "InternalError")


async def test_another_namespace_is_nothing_to_the_webhook(
    api: Any, hook: Any, in_force: Any
) -> None:
    await in_force(api, hook, MUTATING, hook.configuration(api))
    other = api.unique("other")
    await api.create("namespaces", {"metadata": {"name": other}})
    api.namespace = other

    await api.create("pods", api.pod("one"))

    assert hook.requests == []


async def test_a_deletion_shows_what_goes_and_no_more(api: Any, hook: Any, in_force: Any) -> None:
    body = hook.configuration(api)
    body["webhooks"][0]["rules"][0]["operations"] = ["DELETE"]
    probe = api.unique("probe")
    await api.create("pods", api.pod(probe))
    await api.create(MUTATING, body)

    async def asked() -> bool:
        await api.delete("pods", probe, dryRun="All")
        return bool(hook.requests)

    await api.until(asked)
    hook.requests.clear()

    await api.create("pods", api.pod("one"))
    await api.delete("pods", "one")

    # A real server asks more than once about a pod, which it marks before it goes.
    assert {request["operation"] for request in hook.requests} == {"DELETE"}
    request = hook.requests[-1]
    assert request["object"] is None
    assert request["oldObject"]["metadata"]["name"] == "one"


W = "webhooks[0]"
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no time at all": (
        {"timeoutSeconds": 0},
        [f"{W}.timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 s"],
    ),
    "more than 30 seconds": (
        {"timeoutSeconds": 31},
        [f"{W}.timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 "],
    ),
    "a name of two parts": (
        {"name": "hook.example"},
        [f'{W}.name: Invalid value: "hook.example": should be a domain with at least three se'],
    ),
    "an unknown policy": (
        {"failurePolicy": "Maybe"},
        [f'{W}.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'],
    ),
    "side effects that a dry run can't avoid": (
        {"sideEffects": "Some"},
        [f'{W}.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRu'],
    ),
    "no side effects declared": (
        {"sideEffects": None},
        [f"{W}.sideEffects: Required value: must specify one of None, NoneOnDryRun"],
    ),
    "no version of reviews": (
        {"admissionReviewVersions": []},
        [f"{W}.admissionReviewVersions: Required value: must specify one of v1, v1beta1"],
    ),
    "a condition without name": (
        {"matchConditions": [{"expression": "true"}]},
        [f"{W}.matchConditions[0].name: Required value"],
    ),
    "a condition without expression": (
        {"matchConditions": [{"name": "a"}]},
        [f"{W}.matchConditions[0].expression: Required value"],
    ),
    "a condition twice": (
        {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
        [f'{W}.matchConditions[1].name: Duplicate value: "a"'],
    ),
    "a condition that is not a bool": (
        {"matchConditions": [{"name": "a", "expression": "1"}]},
        [f'{W}.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but g'],
    ),
    "a url without TLS": (
        {"clientConfig": {"url": "http://127.0.0.1/x"}},
        [f"{W}.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL schem"],
    ),
    "neither url nor service": (
        {"clientConfig": {}},
        [f"{W}.clientConfig: Required value: exactly one of url or service is required"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_configuration_is_refused(
    api: Any, invalid: Any, hook: Any, what: str
) -> None:
    more, expected = WRONG[what]
    body = hook.configuration(api, **more)

    with invalid(expected):
        await api.create(MUTATING, body)


async def test_at_most_64_conditions_and_30_seconds(api: Any, refused: Any, hook: Any) -> None:
    def conditions(count: int) -> list[dict[str, str]]:
        return [{"name": f"c{index}", "expression": "true"} for index in range(count)]

    at = hook.configuration(api, matchConditions=conditions(64), timeoutSeconds=30)
    await api.create(MUTATING, at)

    with pytest.raises(refused) as caught:
        await api.create(MUTATING, hook.configuration(api, matchConditions=conditions(65)))

    [(field, message)] = caught.value.causes()
    assert field == f"{W}.matchConditions"
    assert message.startswith("Too many: 65: must have at most 64 items")
