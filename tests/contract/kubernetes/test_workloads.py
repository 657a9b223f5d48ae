"""Workloads, which both servers list in discovery, and only a real control plane runs."""

from typing import Any

import pytest

PODS = {
    "selector": {"matchLabels": {"app": "web"}},
    "template": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    },
}
JOB = {
    "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
}
WORKLOADS = {
    "daemonsets": PODS,
    "deployments": PODS,
    "replicasets": PODS,
    "statefulsets": PODS | {"serviceName": "web"},
    "jobs": JOB,
    "cronjobs": {"schedule": "@daily", "jobTemplate": {"spec": JOB}},
}


@pytest.mark.parametrize("plural", WORKLOADS)
async def test_workloads_are_found_in_discovery(api: Any, plural: str) -> None:
    group_version = api.path(plural).partition("/namespaces/")[0]
    listed = await api.call("GET", group_version)
    entry = next(one for one in listed["resources"] if one["name"] == plural)
    assert entry["namespaced"]
    assert {"create", "get"} <= set(entry["verbs"])


@pytest.mark.parametrize("plural", WORKLOADS)
async def test_a_workload_that_does_not_exist_is_not_found(
    api: Any, refused: Any, plural: str
) -> None:
    with pytest.raises(refused) as caught:
        await api.call("GET", api.path(plural, "web"))
    group = api.path(plural).split("/")[2]
    assert caught.value.code == 404
    assert caught.value.message == f'{plural}.{group} "web" not found'


@pytest.mark.parametrize("plural", WORKLOADS)
async def test_only_the_sandbox_refuses_workloads_and_says_what_runs_them(
    api: Any, refused: Any, plural: str
) -> None:
    workload = {"metadata": {"name": "web"}, "spec": WORKLOADS[plural]}
    if api.target.name == "real":
        assert (await api.create(plural, workload))["metadata"]["name"] == "web"
        return
    with pytest.raises(refused) as caught:
        await api.create(plural, workload)
    group = api.path(plural).split("/")[2]
    assert caught.value.code == 403
    assert caught.value.message == (
        f"{plural}.{group} is forbidden: the sandbox runs no workloads, only pods: "
        "start a stack that runs them with `dray up --control-plane real`"
    )


@pytest.mark.parametrize("subresource", ["exec", "attach"])
async def test_commands_are_refused_without_a_kubelet_that_runs_containers(
    api: Any, refused: Any, subresource: str
) -> None:
    name = (await api.create("pods", api.pod("one")))["metadata"]["name"]
    with pytest.raises(refused) as caught:
        await api.call("GET", api.path("pods", name, subresource))
    assert caught.value.code == 400
    assert caught.value.message.startswith(
        f"pod {name} does not have a host assigned"
        if api.target.name == "real"
        else "the sandbox runs no containers"
    )


async def test_containers_of_a_pod_that_does_not_exist_are_not_found(
    api: Any, refused: Any
) -> None:
    with pytest.raises(refused) as caught:
        await api.call("GET", api.path("pods", "nobody", "log"))
    assert caught.value.code == 404


@pytest.mark.parametrize("plural", WORKLOADS)
async def test_only_the_sandbox_lists_no_workloads_and_says_what_runs_them(
    api: Any, refused: Any, plural: str
) -> None:
    if api.target.name == "real":
        assert (await api.call("GET", api.path(plural)))["items"] == []
        return
    with pytest.raises(refused) as caught:
        await api.call("GET", api.path(plural))
    assert caught.value.code == 405
    assert "`dray up --control-plane real`" in caught.value.message
