"""PodGroups and Queues as frameworks write them, and the pods that join them."""

from typing import Any

import pytest

from dray.api.groups import KUBERNETES, VOLCANO, SubGroupPolicy
from dray.api.pods import GroupKey, GroupMember, NodeExpression
from dray.kube.convert import group_member, pod_group_from, queue_from
from dray.kube.ports import NATIVE_POD_GROUPS, POD_GROUPS


def obj(api: str, **parts: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": "train", "uid": "g", **parts.pop("metadata", {})}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": metadata, **parts}


def pod(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "p", **metadata}, "spec": spec or {}}


def test_a_group_of_volcano_has_all_its_minimums() -> None:
    spec = {
        "minMember": 3,
        "minTaskMember": {"ps": 1, "worker": 2, "chief": 0},
        "minResources": {"cpu": 4, "memory": "8Gi"},
        "queue": "research",
        "priorityClassName": "high",
        "subGroupPolicy": [
            {
                "name": "replica",
                "labelSelector": {
                    "matchLabels": {"role": "worker"},
                    "matchExpressions": [{"key": "replica", "operator": "Exists"}],
                },
                "matchLabelKeys": ["replica"],
                "subGroupSize": 2,
                "minSubGroups": 3,
            }
        ],
    }
    annotations = {
        "volcano.sh/task-topology-affinity": "ps,worker; chief,ps",
        "volcano.sh/task-topology-anti-affinity": "ps",
        "volcano.sh/task-topology-task-order": "ps,worker",
        "tensor-fusion.ai/gang-timeout": "5m",
        "tensor-fusion.ai/gang-loss-policy": "keep",
    }
    found = pod_group_from(
        obj(f"{VOLCANO}/v1beta1", spec=spec, metadata={"annotations": annotations})
    )
    assert found.key == GroupKey(VOLCANO, "team", "train")
    assert (found.minimum, found.task_minimums) == (3, {"ps": 1, "worker": 2})
    assert found.min_resources == {"cpu": "4", "memory": "8Gi"}
    assert (found.queue, found.priority_class, found.timeout_s) == ("research", "high", 300.0)
    assert found.sub_groups == (
        SubGroupPolicy(
            name="replica",
            selector=(
                NodeExpression("role", "In", ("worker",)),
                NodeExpression("replica", "Exists"),
            ),
            label_keys=("replica",),
            size=2,
            minimum=3,
        ),
    )
    assert found.affinity == (("ps", "worker"), ("chief", "ps"))
    assert found.anti_affinity == (("ps",),)
    assert found.task_order == ("ps", "worker")
    assert not found.ends_below_minimum
    assert found.is_gang


def sets(count: int) -> str:
    return ";".join(f"a,b{i}" for i in range(count))


@pytest.mark.parametrize(
    ("field", "spec", "annotations"),
    [
        ("minTaskMember", {"minTaskMember": {f"t{i}": 1 for i in range(65)}}, {}),
        ("subGroupPolicy", {"subGroupPolicy": [{}] * 65}, {}),
        ("matchLabelKeys", {"subGroupPolicy": [{"matchLabelKeys": ["a"] * 65}]}, {}),
        ("volcano.sh/task-topology-affinity", {}, sets(65)),
        ("volcano.sh/task-topology-anti-affinity", {}, ",".join(f"t{i}" for i in range(65))),
        ("volcano.sh/task-topology-task-order", {}, ",".join(f"t{i}" for i in range(65))),
    ],
)
def test_lists_of_more_than_64_entries_are_cut_and_block_the_group(
    field: str, spec: dict[str, Any], annotations: str
) -> None:
    metadata = {"annotations": {field: annotations} if annotations else {}}
    found = pod_group_from(obj(f"{VOLCANO}/v1beta1", spec=spec, metadata=metadata))
    assert found.blocked == (
        f"PodGroup team/train has more than 64 entries in {field}: dray reads 64 at most; "
        "write fewer"
    )
    parts = (found.task_minimums, found.affinity, found.anti_affinity, found.task_order)
    inner = (found.sub_groups, *found.anti_affinity, *(one.label_keys for one in found.sub_groups))
    assert max(map(len, (*parts, *inner))) == 64


def test_64_entries_are_read_and_equal_ones_count_once() -> None:
    annotations = {"volcano.sh/task-topology-affinity": f"{sets(64)};a,b0;a,b0,a"}
    found = pod_group_from(obj(f"{VOLCANO}/v1beta1", metadata={"annotations": annotations}))
    assert (len(found.affinity), found.affinity[0], found.blocked) == (64, ("a", "b0"), "")


@pytest.mark.parametrize(
    ("text", "timeout_s"),
    [("30d", 2_592_000.0), ("31d", 0.0), ("9" * 309 + "d", 0.0), ("1ms", 5.0), ("0s", 0.0)],
)
def test_a_timeout_has_bounds(text: str, timeout_s: float) -> None:
    metadata = {"annotations": {"tensor-fusion.ai/gang-timeout": text}}
    for api in (VOLCANO, KUBERNETES):
        assert pod_group_from(obj(f"{api}/v1beta1", metadata=metadata)).timeout_s == timeout_s


def test_an_empty_group_of_volcano_is_in_the_default_queue() -> None:
    found = pod_group_from(obj(f"{VOLCANO}/v1beta1"))
    assert found.queue == "default"
    assert not found.is_gang


@pytest.mark.parametrize(
    ("policy", "minimum"), [({"basic": {}}, 0), ({"gang": {"minCount": 4}}, 4)]
)
def test_a_native_group_has_its_count(policy: dict[str, Any], minimum: int) -> None:
    found = pod_group_from(obj(f"{KUBERNETES}/v1beta1", spec={"schedulingPolicy": policy}))
    assert found.key.api == KUBERNETES
    assert found.minimum == minimum
    assert not found.ends_below_minimum


def test_a_native_group_that_is_disrupted_as_a_whole_ends_below_its_minimum() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
    assert pod_group_from(obj(f"{KUBERNETES}/v1beta1", spec=spec)).ends_below_minimum


def test_a_queue_without_a_state_is_open() -> None:
    assert queue_from({"metadata": {"name": "q"}}).is_open
    assert not queue_from({"metadata": {"name": "q"}, "status": {"state": "Closed"}}).is_open


def test_a_queue_has_its_amounts() -> None:
    spec = {"capability": {"cpu": 8}, "deserved": {"cpu": 4}, "guarantee": {"resource": {"cpu": 2}}}
    found = queue_from(
        {"metadata": {"name": "q"}, "spec": spec, "status": {"allocated": {"pods": "3"}}}
    )
    assert (found.capability, found.deserved, found.guarantee) == (
        {"cpu": "8"},
        {"cpu": "4"},
        {"cpu": "2"},
    )
    assert found.pods == 3


@pytest.mark.parametrize(
    "key", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"]
)
@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_a_pod_joins_by_annotation_or_label(key: str, place: str) -> None:
    member = group_member(pod(**{place: {key: "train"}}))
    assert member is not None
    assert member.group == GroupKey(VOLCANO, "team", "train")


def test_a_pod_joins_a_native_group_by_its_field() -> None:
    spec = {"schedulingGroup": {"podGroupName": "native"}}
    annotations = {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": "worker"}
    member = group_member(pod(spec, annotations=annotations, labels={"replica": "1"}))
    assert member == GroupMember(GroupKey(KUBERNETES, "team", "native"), "worker", {"replica": "1"})


def test_other_pods_join_no_group() -> None:
    assert group_member(pod(annotations={"scheduling.k8s.io/group-name": ""})) is None


@pytest.mark.parametrize("name", ["a/b", "A_B", "a *>\n", "a..b", "a" * 254])
def test_a_pod_that_names_no_possible_group_is_in_none(name: str) -> None:
    for key in ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"):
        assert group_member(pod(annotations={key: name})) is None
    assert group_member(pod({"schedulingGroup": {"podGroupName": name}})) is None


def test_both_kinds_are_served_at_their_own_path() -> None:
    assert POD_GROUPS.path("team", "train") == (
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/train"
    )
    assert NATIVE_POD_GROUPS.path("team", "train", "status") == (
        "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups/train/status"
    )
    assert POD_GROUPS.plural != NATIVE_POD_GROUPS.plural
