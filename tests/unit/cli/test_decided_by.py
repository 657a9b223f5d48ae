"""``dray explain`` says what a pod's decision was taken by."""

from typing import Any

import pytest

from dray.api.names import GPU_TOPOLOGY, PLACEMENT, PREFER
from dray.kube.memory import MemoryKube
from dray.kube.ports import BIND_REQUESTS, CLAIMS, PODS, POLICIES, POOLS, Object
from dray_cli.decision_source import DecisionSource, decided_by
from dray_cli.explain import fetch_explanation

POOL: Object = {"metadata": {"name": "fast"}, "spec": {"schedulingConfigTemplate": "standard"}}


def a_pod(**annotations: str) -> Object:
    return {"metadata": {"name": "train", "namespace": "default", "annotations": annotations}}


def decided(policy: int = 1, learned: int = 7) -> Object:
    return {"status": {"decidedBy": {"policyVersion": policy, "learnedVersion": learned}}}


async def with_policy(**placement: Any) -> MemoryKube:
    kube = MemoryKube()
    policy = {"metadata": {"name": "standard"}, "spec": {"placement": placement}}
    await kube.create(POLICIES, policy)
    return kube


@pytest.mark.parametrize(
    ("placement", "own", "line"),
    [
        (
            {},
            {},
            "Decided by FragmentationAware (SchedulingConfigTemplate standard version 1, learned "
            "version 7)",
        ),
        (
            {"mode": "CompactFirst"},
            {},
            "Decided by CompactFirst (SchedulingConfigTemplate standard version 1)",
        ),
        (
            {"mode": "CompactFirst"},
            {PLACEMENT: "KubernetesCompatible"},
            "Decided by KubernetesCompatible (SchedulingConfigTemplate standard version 1)",
        ),
        (
            {"mode": "KubernetesCompatible"},
            {},
            "Decided by KubernetesCompatible (SchedulingConfigTemplate standard version 1)",
        ),
        (
            {"mode": "KubernetesCompatible"},
            {PREFER: "vram asc", GPU_TOPOLOGY: "soft"},
            "Decided by KubernetesCompatible (SchedulingConfigTemplate standard version 1); "
            "tensor-fusion.ai/prefer and tensor-fusion.ai/gpu-topology have no effect with it",
        ),
        (
            {"mode": "KubernetesCompatible"},
            {GPU_TOPOLOGY: "none"},
            "Decided by KubernetesCompatible (SchedulingConfigTemplate standard version 1)",
        ),
        (
            {"mode": "CompactFirst"},
            {PLACEMENT: "node=spread,gpu=binpack", GPU_TOPOLOGY: "soft"},
            "Decided by node=spread,gpu=binpack (SchedulingConfigTemplate standard version 1)",
        ),
        (
            {"mode": "CompactFirst"},
            {PLACEMENT: "FragmentationAware"},
            "Decided by FragmentationAware (SchedulingConfigTemplate standard version 1, learned "
            "version 7)",
        ),
    ],
)
async def test_the_placement_is_the_policys_unless_the_pod_has_its_own(
    placement: dict[str, str], own: dict[str, str], line: str
) -> None:
    kube = await with_policy(**placement)

    found = await decided_by(kube, a_pod(**own), POOL, decided())

    assert found is not None
    assert found.line() == line


async def test_the_recorded_mode_is_shown_after_the_policy_has_changed_or_is_gone() -> None:
    kube = await with_policy(mode="CompactFirst")
    entry = decided(learned=0)
    entry["status"]["decidedBy"] |= {"placement": "CompactFirst", "policy": "standard"}
    await kube.patch(POLICIES, "standard", {"spec": {"placement": {"mode": "LowLoadFirst"}}})

    changed = await decided_by(kube, a_pod(), POOL, entry)
    without_pool = await decided_by(kube, a_pod(), None, entry)

    assert changed is not None
    assert changed.line() == (
        "Decided by CompactFirst (SchedulingConfigTemplate standard version 1, which is at 2 now)"
    )
    assert without_pool is not None
    assert without_pool.line() == (
        "Decided by CompactFirst (SchedulingConfigTemplate standard version 1)"
    )


async def test_only_versions_are_shown_if_no_mode_is_recorded_and_the_policy_changed() -> None:
    kube = await with_policy(mode="CompactFirst")
    changed = {"spec": {"placement": {"mode": "LowLoadFirst"}}}
    await kube.patch(POLICIES, "standard", changed)

    found = await decided_by(kube, a_pod(), POOL, decided())

    assert found is not None
    assert found.line() == (
        "Decided by a policy (SchedulingConfigTemplate standard version 1, which is at 2 now, "
        "learned version 7)"
    )
    assert found.as_json() == {"policy": "standard", "policyVersion": 1, "learnedVersion": 7}


async def test_a_pool_without_a_policy_is_decided_by_the_default() -> None:
    found = await decided_by(MemoryKube(), a_pod(), None, decided(policy=0, learned=0))

    assert found is not None
    assert found.line() == (
        "Decided by FragmentationAware (the pool had no SchedulingConfigTemplate, nothing was "
        "learned yet)"
    )


async def test_without_the_policy_the_versions_are_shown() -> None:
    found = await decided_by(MemoryKube(), a_pod(), POOL, decided())

    assert found == DecisionSource(1, 7)
    assert found.as_json() == {"policyVersion": 1, "learnedVersion": 7}
    assert found.line() == (
        "Decided by a policy (SchedulingConfigTemplate of its pool version 1, learned version 7)"
    )


@pytest.mark.parametrize("expected", [None, {}, {"status": {"phase": "Pending"}}])
async def test_without_a_decision_nothing_is_shown(expected: Object | None) -> None:
    assert await decided_by(MemoryKube(), a_pod(), POOL, expected) is None


async def test_explain_shows_it_with_the_cards() -> None:
    kube = await with_policy()
    await kube.create(POOLS, POOL)
    named = {"name": "gpu", "resourceClaimName": "of-train"}
    pod = a_pod(**{"tensor-fusion.ai/gpupool": "fast"})
    made = await kube.create(PODS, {**pod, "spec": {"resourceClaims": [named]}}, "default")
    bind: Object = {"metadata": {"name": "train"}, "spec": {"podUID": made["metadata"]["uid"]}}
    await kube.create(BIND_REQUESTS, bind, "default")
    await kube.patch(BIND_REQUESTS, "train", decided(), "default", subresource="status")
    labels = {"tensor-fusion.ai/gpupool": "fast"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    spec = {"devices": {"requests": [request]}}
    claim: Object = {"metadata": {"name": "of-train", "labels": labels}, "spec": spec}
    made = await kube.create(CLAIMS, claim, "default")
    result = {"device": "gpu-1", "pool": "node-1", "driver": "d", "request": "gpu"}
    made["status"] = {"allocation": {"devices": {"results": [result]}}}
    await kube.update(CLAIMS, made, subresource="status")

    found = await fetch_explanation(kube, "default", "train")

    assert found.lines()[1:] == [
        "  gpu-1 on node-1",
        "  Decided by FragmentationAware (SchedulingConfigTemplate standard version 1, learned "
        "version 7)",
    ]
    assert found.as_json()["decidedBy"] == {
        "placement": "FragmentationAware",
        "policy": "standard",
        "policyVersion": 1,
        "learnedVersion": 7,
    }
