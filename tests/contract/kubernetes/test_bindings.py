"""Bindings of pods to nodes."""

from typing import Any

import pytest

GATE = {"name": "tensor-fusion.ai/allocation"}


async def test_binding_sets_the_node_and_its_condition(api: Any) -> None:
    await api.create("pods", api.pod("one"))

    answer = await api.bind("one", "node-1", annotations={"by": "test"})

    assert answer["status"] == "Success"
    pod = await api.get("pods", "one")
    assert pod["spec"]["nodeName"] == "node-1"
    assert pod["metadata"]["annotations"]["by"] == "test"
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_a_bound_pod_is_not_bound_again(api: Any, refused: Any) -> None:
    await api.create("pods", api.pod("one"))
    await api.bind("one", "node-1")

    with pytest.raises(refused) as caught:
        await api.bind("one", "node-2")

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert caught.value.message == (
        'Operation cannot be fulfilled on pods/binding "one": pod one is already assigned to '
        'node "node-1"'
    )


async def test_a_gated_pod_is_not_bound(api: Any, refused: Any) -> None:
    await api.create("pods", api.pod("one", schedulingGates=[GATE]))

    with pytest.raises(refused) as caught:
        await api.bind("one", "node-1")

    assert caught.value.code == 409
    assert caught.value.message == (
        'Operation cannot be fulfilled on pods/binding "one": pod one has non-empty '
        ".spec.schedulingGates"
    )


async def test_a_binding_for_another_uid_is_refused(api: Any, refused: Any) -> None:
    await api.create("pods", api.pod("one"))

    with pytest.raises(refused) as caught:
        await api.bind("one", "node-1", uid="00000000-0000-0000-0000-000000000001")

    assert caught.value.code == 409
    assert "Precondition failed: UID in precondition" in caught.value.message


async def test_a_binding_for_an_older_revision_is_refused(api: Any, refused: Any) -> None:
    """The binder has not read the pod's current state."""
    seen = (await api.create("pods", api.pod("one")))["metadata"]
    note = {"metadata": {"annotations": {"example.com/by": "another"}}}
    now = (await api.patch("pods", "one", note))["metadata"]

    with pytest.raises(refused) as caught:
        await api.bind("one", "node-1", uid=seen["uid"], resourceVersion=seen["resourceVersion"])

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert caught.value.message.endswith(
        f"Precondition failed: ResourceVersion in precondition: {seen['resourceVersion']}, "
        f"ResourceVersion in object meta: {now['resourceVersion']}"
    )
    assert "nodeName" not in (await api.get("pods", "one"))["spec"]


async def test_a_binding_for_the_newest_revision_is_made(api: Any) -> None:
    made = (await api.create("pods", api.pod("one")))["metadata"]

    await api.bind("one", "node-1", uid=made["uid"], resourceVersion=made["resourceVersion"])

    assert (await api.get("pods", "one"))["spec"]["nodeName"] == "node-1"


async def test_a_patch_of_the_pod_as_it_was_unbound_is_refused(api: Any, refused: Any) -> None:
    made = (await api.create("pods", api.pod("one")))["metadata"]
    await api.bind("one", "node-1", uid=made["uid"], resourceVersion=made["resourceVersion"])
    fence = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    note = {"metadata": {**fence, "annotations": {"example.com/by": "another"}}}

    with pytest.raises(refused) as caught:
        await api.patch("pods", "one", note)

    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert "annotations" not in (await api.get("pods", "one"))["metadata"]
