"""Evictions: what they ask before they delete."""

from typing import Any

import pytest

VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."


def eviction(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **more}


async def evict(api: Any, name: str, **more: Any) -> Any:
    return await api.call("POST", api.path("pods", name, "eviction"), eviction(name, **more))


async def running(api: Any, name: str, *, ready: bool = True) -> Any:
    pod = api.pod(name)
    pod["metadata"]["labels"] = {"app": "x"}
    await api.create("pods", pod)
    await api.bind(name, "node-1")
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    return await api.patch("pods", name, status, "status", kind="strategic")


@pytest.fixture
async def budget(api: Any) -> str:
    """The path of a budget of pods labelled app=x, whose status nobody has written yet."""
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await api.call("POST", path, {"metadata": {"name": "keep"}, "spec": spec})
    return f"{path}/keep"


async def allow(api: Any, budget: str, allowed: int, healthy: int) -> None:
    counts = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "expectedPods": 2}
    status = {"status": {"observedGeneration": 1, "desiredHealthy": 1, **counts}}
    await api.call("PATCH", f"{budget}/status", status, kind="application/merge-patch+json")


async def causes(api: Any, refused: Any, name: str) -> list[str]:
    with pytest.raises(refused) as caught:
        await evict(api, name)
    assert (caught.value.code, caught.value.reason) == (429, "TooManyRequests")
    assert caught.value.message == VIOLATED
    return [cause["message"] for cause in caught.value.status["details"]["causes"]]


async def test_an_eviction_waits_for_the_budgets_status(
    api: Any, refused: Any, budget: str
) -> None:
    await running(api, "one")

    expected = ["The disruption budget keep is still being processed by the server."]
    assert await causes(api, refused, "one") == expected
    assert "deletionTimestamp" not in (await api.get("pods", "one"))["metadata"]


async def test_a_spent_budget_forbids_it(api: Any, refused: Any, budget: str) -> None:
    await running(api, "one")
    await allow(api, budget, 0, 1)

    expected = ["The disruption budget keep needs 1 healthy pods and has 1 currently"]
    assert await causes(api, refused, "one") == expected


async def test_an_eviction_spends_the_budget(api: Any, refused: Any, budget: str) -> None:
    for name in ("one", "two"):
        await running(api, name)
    await allow(api, budget, 1, 2)

    await evict(api, "one")

    status = (await api.call("GET", budget))["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["one"])
    await causes(api, refused, "two")
    await evict(api, "one")  # what goes already is asked for nothing


async def test_a_pod_that_never_ran_costs_nothing(api: Any, budget: str) -> None:
    pod = api.pod("one")
    pod["metadata"]["labels"] = {"app": "x"}
    await api.create("pods", pod)

    await evict(api, "one")

    assert await api.names("pods") == []


async def test_a_pod_that_is_not_ready_costs_nothing_while_others_are(
    api: Any, budget: str
) -> None:
    await running(api, "one", ready=False)
    await allow(api, budget, 0, 1)

    await evict(api, "one")

    assert "deletionTimestamp" in (await api.get("pods", "one"))["metadata"]


async def test_another_name_or_uid_is_refused(api: Any, refused: Any) -> None:
    await running(api, "one")
    with pytest.raises(refused) as caught:
        await api.call("POST", api.path("pods", "one", "eviction"), eviction("two"))
    assert caught.value.code == 400
    other = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000001"}}

    with pytest.raises(refused) as caught:
        await evict(api, "one", deleteOptions=other)

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")


async def test_a_dry_run_evicts_no_pod(api: Any) -> None:
    await running(api, "one")

    await evict(api, "one", deleteOptions={"dryRun": ["All"]})

    assert "deletionTimestamp" not in (await api.get("pods", "one"))["metadata"]


async def test_an_absent_user_is_not_found(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await evict(api, "nobody")

    assert (caught.value.code, caught.value.reason) == (404, "NotFound")
