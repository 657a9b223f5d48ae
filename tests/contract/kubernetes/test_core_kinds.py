"""What the server does with nodes, events, leases and priority classes."""

from typing import Any

import pytest


async def test_a_new_node_is_tainted_until_it_is_ready(api: Any) -> None:
    name = api.unique("node")
    status = {"capacity": {"cpu": "4", "memory": "8192Mi"}}

    node = await api.create("nodes", {"metadata": {"name": name}, "status": status})

    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert node["spec"]["taints"] == [taint]
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi"}


async def test_an_event_belongs_to_the_namespace_of_its_object(api: Any, refused: Any) -> None:
    about = {"kind": "Pod", "name": "one", "namespace": "elsewhere"}

    with pytest.raises(refused) as caught:
        await api.create("events", {"metadata": {"name": "e"}, "involvedObject": about})

    assert caught.value.causes()[0][0] == "involvedObject.namespace"


async def test_events_are_found_by_what_they_are_about(api: Any) -> None:
    for name in ("one", "two"):
        about = {"kind": "Pod", "name": name, "namespace": api.namespace}
        event = {"metadata": {"name": f"e-{name}"}, "involvedObject": about, "message": "m"}
        await api.create("events", event)

    found = await api.names("events", fieldSelector="involvedObject.name=two")

    assert found == ["e-two"]


async def test_a_lease_wants_microseconds(api: Any, refused: Any) -> None:
    spec = {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00Z"}
    with pytest.raises(refused) as caught:
        await api.create("leases", {"metadata": {"name": "one"}, "spec": spec})
    assert caught.value.code == 400

    spec["renewTime"] = "2026-01-01T00:00:00.500000Z"
    made = await api.create("leases", {"metadata": {"name": "one"}, "spec": spec})

    assert made["spec"] == spec


async def test_a_priority_comes_from_its_class(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create("pods", api.pod("bad", priorityClassName="none"))
    assert caught.value.code == 403
    expected = 'pods "bad" is forbidden: no PriorityClass with name none was found'
    assert caught.value.message == expected
    name = api.unique("class")
    await api.create("priorityclasses", {"metadata": {"name": name}, "value": 7})

    async def known() -> bool:
        try:
            await api.create("pods", api.pod("one", priorityClassName=name))
        except refused:
            return False
        return True

    await api.until(known)
    assert (await api.get("pods", "one"))["spec"]["priority"] == 7
