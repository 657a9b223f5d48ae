"""The custom resources of Volcano: the fields of its release 1.15, and its own subresources."""

from collections.abc import Iterator
from typing import Any

import pytest

from dray_sandbox.apiserver.columns import json_path
from tools.generate.custom_resources import crd
from tools.generate.volcano_resources import VolcanoPodGroup, VolcanoQueue

POD_GROUP = """
spec.minMember spec.minTaskMember spec.queue spec.priorityClassName spec.minResources
spec.networkTopology.mode spec.networkTopology.highestTierAllowed
spec.networkTopology.highestTierName
spec.subGroupPolicy.name spec.subGroupPolicy.labelSelector.matchLabels
spec.subGroupPolicy.labelSelector.matchExpressions.key
spec.subGroupPolicy.labelSelector.matchExpressions.operator
spec.subGroupPolicy.labelSelector.matchExpressions.values
spec.subGroupPolicy.matchLabelKeys spec.subGroupPolicy.subGroupSize
spec.subGroupPolicy.minSubGroups spec.subGroupPolicy.networkTopology.mode
spec.subGroupPolicy.networkTopology.highestTierAllowed
spec.subGroupPolicy.networkTopology.highestTierName
status.phase status.running status.succeeded status.failed status.pending
status.conditions.type status.conditions.status status.conditions.transitionID
status.conditions.lastTransitionTime status.conditions.reason status.conditions.message
""".split()  # noqa: SIM905
QUEUE = """
spec.weight spec.capability spec.reclaimable spec.extendClusters.name spec.extendClusters.weight
spec.extendClusters.capacity spec.guarantee.resource
spec.affinity.nodeGroupAffinity.requiredDuringSchedulingIgnoredDuringExecution
spec.affinity.nodeGroupAffinity.preferredDuringSchedulingIgnoredDuringExecution
spec.affinity.nodeGroupAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution
spec.affinity.nodeGroupAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution
spec.type spec.parent spec.deserved spec.priority spec.dequeueStrategy
status.state status.unknown status.pending status.running status.inqueue status.completed
status.reservation.nodes status.reservation.resource status.allocated
""".split()  # noqa: SIM905
QUEUE_CONDITIONS = """
status.conditions.type status.conditions.status status.conditions.transitionID
status.conditions.lastTransitionTime status.conditions.reason status.conditions.message
""".split()  # noqa: SIM905
"""Of dray: what of a queue it does not act on."""


def version(kind: Any) -> dict[str, Any]:
    (found,) = crd(kind)["spec"]["versions"]
    return dict(found)


def schema(kind: Any) -> dict[str, Any]:
    return dict(version(kind)["schema"]["openAPIV3Schema"])


def leaves(node: dict[str, Any], path: str = "") -> Iterator[str]:
    if "items" in node:
        node = node["items"]
    fields = node.get("properties") or {}
    if not fields:
        yield path
    for name, inner in fields.items():
        yield from leaves(inner, f"{path}.{name}" if path else name)


@pytest.mark.parametrize(
    ("kind", "fields"), [(VolcanoPodGroup, POD_GROUP), (VolcanoQueue, QUEUE + QUEUE_CONDITIONS)]
)
def test_every_field_of_volcano_is_there(kind: Any, fields: list[str]) -> None:
    found = [path for path in leaves(schema(kind)) if path.startswith(("spec", "status"))]
    assert sorted(found) == sorted(fields)


def test_a_spec_may_be_absent() -> None:
    assert "required" not in schema(VolcanoPodGroup)


def test_only_queues_have_a_status_subresource() -> None:
    assert "subresources" not in version(VolcanoPodGroup)
    assert version(VolcanoQueue)["subresources"] == {"status": {}}


def test_weights_of_queues_are_bounded_as_in_volcano() -> None:
    weight = schema(VolcanoQueue)["properties"]["spec"]["properties"]["weight"]
    assert (weight["default"], weight["minimum"], weight["maximum"]) == (1, 1, 65535)
    assert weight["format"] == "int32"


def test_subgroup_policies_are_bounded() -> None:
    policies = schema(VolcanoPodGroup)["properties"]["spec"]["properties"]["subGroupPolicy"]
    assert policies["maxItems"] == 64


def test_amounts_are_numbers_or_texts() -> None:
    least = schema(VolcanoPodGroup)["properties"]["spec"]["properties"]["minResources"]
    assert least["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_kubectl_shows_what_a_group_has_and_why_it_waits() -> None:
    waits = {"type": "Unschedulable", "reason": "NotEnoughResources"}
    status = {"phase": "Inqueue", "running": 1, "pending": 3}
    status |= {"conditions": [{"type": "Scheduled", "reason": "x"}, waits]}
    group = {"spec": {"minMember": 4, "queue": "research"}, "status": status}
    columns = version(VolcanoPodGroup)["additionalPrinterColumns"]
    shown = {one["name"]: json_path(group, one["jsonPath"]) for one in columns}
    assert shown == {
        "STATUS": ["Inqueue"],
        "minMember": [4],
        "RUNNINGS": [1],
        "PENDING": [3],
        "REASON": ["NotEnoughResources"],
        "AGE": [],
        "QUEUE": ["research"],
    }
