"""Pods: defaults, gates, eviction, graceful deletion."""

from typing import Any

import pytest

GATE = {"name": "tensor-fusion.ai/allocation"}


async def test_defaults_are_filled_in(api: Any) -> None:
    made = await api.create("pods", api.pod("one"))

    spec = made["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


async def test_the_default_scheduler_is_the_default(api: Any) -> None:
    pod = api.pod("one", schedulingGates=[GATE])
    del pod["spec"]["schedulerName"]

    assert (await api.create("pods", pod))["spec"]["schedulerName"] == "default-scheduler"


async def test_limits_are_requests_where_none_are_given(api: Any) -> None:
    pod = api.pod("one")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "500m", "memory": "1024Mi"}}

    made = await api.create("pods", pod)

    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert made["status"]["qosClass"] == "Guaranteed"


async def test_a_gated_pod_says_so(api: Any) -> None:
    made = await api.create("pods", api.pod("one", schedulingGates=[GATE]))

    [condition] = made["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "SchedulingGated"


async def test_gates_can_be_lifted_but_not_added(api: Any, refused: Any) -> None:
    await api.create("pods", api.pod("one", schedulingGates=[GATE]))
    lifted = await api.patch("pods", "one", {"spec": {"schedulingGates": None}})
    assert "schedulingGates" not in lifted["spec"]

    with pytest.raises(refused) as caught:
        await api.patch("pods", "one", {"spec": {"schedulingGates": [GATE]}})

    assert caught.value.code == 422
    expected = (
        "Forbidden: only deletion is allowed, but found new scheduling gate "
        "'tensor-fusion.ai/allocation'"
    )
    assert ("spec.schedulingGates[0].name", expected) in caught.value.causes()


async def test_a_gated_pod_may_get_a_narrower_node_selector(api: Any) -> None:
    await api.create("pods", api.pod("one", schedulingGates=[GATE]))

    changed = await api.patch("pods", "one", {"spec": {"nodeSelector": {"a": "b"}}})

    assert changed["spec"]["nodeSelector"] == {"a": "b"}


async def test_most_of_the_spec_may_not_change(api: Any, refused: Any) -> None:
    await api.create("pods", api.pod("one"))

    with pytest.raises(refused) as caught:
        await api.patch("pods", "one", {"spec": {"nodeSelector": {"a": "b"}}})

    assert caught.value.code == 422
    [(field, message)] = caught.value.causes()
    assert field == "spec"
    assert message.startswith("Forbidden: pod updates may not change fields other than ")


async def test_images_and_added_tolerations_may_change(api: Any) -> None:
    await api.create("pods", api.pod("one"))
    image = {"spec": {"containers": [{"name": "c", "image": "example.com/image:2"}]}}
    changed = await api.patch("pods", "one", image, kind="strategic")
    assert changed["spec"]["containers"][0]["image"] == "example.com/image:2"
    assert changed["metadata"]["generation"] == 2
    toleration = {"key": "a", "operator": "Exists"}
    tolerations = [*changed["spec"].get("tolerations", []), toleration]

    changed = await api.patch("pods", "one", {"spec": {"tolerations": tolerations}})

    assert toleration in changed["spec"]["tolerations"]


async def test_an_unbound_pod_goes_at_once(api: Any) -> None:
    await api.create("pods", api.pod("one"))

    await api.delete("pods", "one")

    assert await api.names("pods") == []


async def test_a_bound_pod_stays_until_it_is_deleted_without_grace(api: Any) -> None:
    await api.create("pods", api.pod("one"))
    await api.bind("one", "node-1")

    answer = await api.delete("pods", "one")

    assert answer["metadata"]["deletionTimestamp"]
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert await api.names("pods") == ["one"]
    await api.delete("pods", "one", {"gracePeriodSeconds": 0})
    assert await api.names("pods") == []


async def test_a_finished_pod_goes_at_once(api: Any) -> None:
    await api.create("pods", api.pod("one"))
    await api.bind("one", "node-1")
    await api.patch("pods", "one", {"status": {"phase": "Succeeded"}}, "status")

    await api.delete("pods", "one")

    assert await api.names("pods") == []


async def test_an_eviction_deletes(api: Any) -> None:
    await api.create("pods", api.pod("one"))
    await api.bind("one", "node-1")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}

    answer = await api.call("POST", api.path("pods", "one", "eviction"), eviction)

    assert answer["status"] == "Success"
    pod = await api.get("pods", "one")
    assert pod["metadata"]["deletionTimestamp"]
    [reason] = [c["reason"] for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert reason == "EvictionByEvictionAPI"
    await api.delete("pods", "one", {"gracePeriodSeconds": 0})


async def test_every_pod_bears_a_node_that_is_away_for_five_minutes(api: Any) -> None:
    made = await api.create("pods", api.pod("one"))

    keys = [toleration["key"] for toleration in made["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


async def test_a_pod_that_goes_at_once_is_marked_before(api: Any) -> None:
    made = await api.create("pods", api.pod("one"))

    answer = await api.delete("pods", "one")

    query = {"resourceVersion": made["metadata"]["resourceVersion"], "timeoutSeconds": 1}
    events = [event async for event in api.watch("pods", **query)]
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    for pod in (answer, *(event["object"] for event in events)):
        assert pod["metadata"]["deletionTimestamp"]
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_status_write_may_carry_annotations_but_no_spec(api: Any) -> None:
    await api.create("pods", api.pod("one"))
    patch = {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }

    after = await api.patch("pods", "one", patch, "status")

    assert after["status"]["phase"] == "Running"
    assert after["metadata"]["annotations"] == {"a": "b"}
    assert "nodeName" not in after["spec"]


async def test_conditions_are_merged_by_type(api: Any) -> None:
    await api.create("pods", api.pod("one"))
    for kind in ("PodScheduled", "Ready"):
        patch = {"status": {"conditions": [{"type": kind, "status": "False"}]}}
        after = await api.patch("pods", "one", patch, "status", kind="strategic")

    assert {c["type"] for c in after["status"]["conditions"]} == {"PodScheduled", "Ready"}


async def test_claim_statuses_name_claims_of_the_spec(api: Any, refused: Any) -> None:
    await api.create("pods", api.pod("one"))
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x"}]}

    with pytest.raises(refused) as caught:
        await api.patch("pods", "one", {"status": status}, "status")

    expected = 'Invalid value: "gpu": must match the name of an entry in `spec.resourceClaims`'
    assert caught.value.causes() == [("status.resourceClaimStatuses[0].name", expected)]


async def test_claims_are_referred_to_exactly_once(api: Any, refused: Any) -> None:
    claims = [{"name": "gpu"}, {"name": "gpu", "resourceClaimName": "x"}]
    pod = api.pod("bad", resourceClaims=claims)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "other"}]}

    with pytest.raises(refused) as caught:
        await api.create("pods", pod)

    fields = [field for field, _ in caught.value.causes()]
    assert sorted(fields) == [
        "spec.containers[0].resources.claims[0]",
        "spec.resourceClaims[0]",
        "spec.resourceClaims[1].name",
    ]


async def test_containers_are_demanded(api: Any, refused: Any) -> None:
    with pytest.raises(refused) as caught:
        await api.create("pods", api.pod("bad", containers=[]))

    assert caught.value.causes() == [("spec.containers", "Required value")]
    assert caught.value.message == 'Pod "bad" is invalid: spec.containers: Required value'


async def test_a_claim_taken_whole_is_not_taken_again(api: Any, refused: Any) -> None:
    pod = api.pod("bad", resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}])
    claims = [{"name": "gpu"}, {"name": "gpu", "request": "a"}]
    pod["spec"]["containers"][0]["resources"] = {"claims": claims}

    with pytest.raises(refused) as caught:
        await api.create("pods", pod)

    expected = [("spec.containers[0].resources.claims[1]", 'Duplicate value: "gpu"')]
    assert caught.value.causes() == expected


async def test_requests_stay_within_limits(api: Any, refused: Any) -> None:
    pod = api.pod("bad")
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}
    pod["spec"]["containers"][0]["resources"] = resources

    with pytest.raises(refused) as caught:
        await api.create("pods", pod)

    field = "spec.containers[0].resources.requests"
    expected = 'Invalid value: "2": must be less than or equal to cpu limit of 1500m'
    assert caught.value.causes() == [(field, expected)]
