"""Claims of a PodGroup of Kubernetes: for whom they are reserved, and who may roll them back."""

from typing import Any

import pytest
from tests.unit.claim_controller.groups.cluster import NATIVE, Cluster

from dray.api.claims import Claim
from dray.api.names import OWNER_DRAY
from dray.kube.convert_claims import Consumer
from dray.kube.ports import CLAIMS, NATIVE_POD_GROUPS, PODS
from dray_claim_controller.cache.groups import group_of_claim, is_reserved_for
from dray_claim_controller.execution.decisions.rollback_rules import may_roll_back

JOINED = {"schedulingGroup": {"podGroupName": "train"}}
OF_GROUP = {"name": "gpu", "resourceClaimTemplateName": "t"}
TO_GROUP = Consumer("train", "podgroups.scheduling.k8s.io-train", is_group=True)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    group(made, OF_GROUP)
    return made


def group(cluster: Cluster, *claims: Any) -> None:
    policy = {"gang": {"minCount": 2}}
    spec = {"schedulingPolicy": policy, "resourceClaims": list(claims)}
    cluster.put(NATIVE_POD_GROUPS, "train", "team", spec=spec)


def pod(cluster: Cluster, name: str, **fields: Any) -> Any:
    """A pod that refers to the claim ``shared``."""
    obj = cluster.pod(name, held=False, **JOINED, **fields)
    obj["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = "shared"
    metadata = {"annotations": obj["metadata"]["annotations"]}
    cluster.put(PODS, name, "team", metadata=metadata, spec=obj["spec"], status=obj["status"])
    return cluster.cache.pods[f"pods-{name}"].pod


def claim(cluster: Cluster, *consumers: Consumer) -> Claim:
    obj = cluster.claim("shared", allocated=True)
    reserved = [one.to_object() for one in consumers]
    status = obj["status"] | ({"reservedFor": reserved} if reserved else {})
    cluster.put(CLAIMS, "shared", "team", spec=obj["spec"], status=status)
    return cluster.cache.claims["resourceclaims-shared"].claim


def test_a_reference_is_to_a_claim_of_the_group_if_name_and_template_are_equal(
    cluster: Cluster,
) -> None:
    one = pod(cluster, "a")
    found = group_of_claim(cluster.cache, one, "shared")
    assert found is not None
    assert found.key == NATIVE
    assert group_of_claim(cluster.cache, one, "other") is None
    for other in (
        {"name": "gpu", "resourceClaimTemplateName": "another"},
        {"name": "another", "resourceClaimTemplateName": "t"},
        {"name": "gpu", "resourceClaimName": "t"},
    ):
        group(cluster, other)
        assert group_of_claim(cluster.cache, one, "shared") is None


def test_a_pod_may_use_what_is_reserved_for_its_group(cluster: Cluster) -> None:
    one = pod(cluster, "a")
    assert is_reserved_for(cluster.cache, claim(cluster, TO_GROUP), one)
    assert not is_reserved_for(cluster.cache, claim(cluster), one)
    other = Consumer("train", "another", is_group=True)
    assert not is_reserved_for(cluster.cache, claim(cluster, other), one)


def test_a_claim_of_the_group_is_kept_while_one_of_its_pods_is_bound(cluster: Cluster) -> None:
    one = pod(cluster, "a")
    pod(cluster, "b")
    claim(cluster, TO_GROUP)

    def is_rolled_back() -> bool:
        return may_roll_back(
            cluster.cache, "resourceclaims-shared", 1, pod_uid=one.uid, binder=OWNER_DRAY
        )

    assert is_rolled_back()
    pod(cluster, "b", nodeName="n1")
    assert not is_rolled_back()


def test_an_entry_of_reserved_for_names_what_it_is() -> None:
    assert Consumer("p", "u").to_object() == {"resource": "pods", "name": "p", "uid": "u"}
    assert TO_GROUP.to_object()["apiGroup"] == "scheduling.k8s.io"
