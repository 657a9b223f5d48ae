"""BindRequests, events and shares, as people read them."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.names import OWNER_DRAY, PLACEMENT
from dray.api.pods import Node, PodNeeds, Policy
from dray.kube.bind_request import BindRequest
from dray.kube.pod_end import PodEnd
from dray.messages.decisions import Waiting
from dray.reasons import Nearest, Reason
from dray_allocator.devices.usage import AssumedResources
from dray_allocator.nodes.predicates import failures
from dray_claim_controller.execution.decisions.executions import DecisionVersions
from dray_claim_controller.execution.decisions.in_flight_allocations import with_shares
from dray_claim_controller.report.decisions import event_messages as stories
from tools.generate.resources import parse

NO_OVERRIDE: dict[str, Any] = {"metadata": {}}
COMPACT = Policy("standard", "u", placement="CompactFirst", version=2)
BY = stories.decided_by(DecisionVersions(2, 7), COMPACT, NO_OVERRIDE, None)


def waiting(*reasons: Reason) -> Waiting:
    return Waiting(
        domain="p",
        epoch=1,
        writer="t",
        facts_sequence=1,
        now_unix_s=0.0,
        pod_uid="p",
        namespace="ns",
        name="pod",
        reasons=reasons,
    )


def test_a_decision_makes_a_valid_bind_request(make: Any) -> None:
    spec = stories.decided_spec(make.decision())
    model = parse(BindRequest, stories.bind_request(make.pod(), spec))

    assert model.spec.selected_node == "node-1"
    assert model.spec.binder == OWNER_DRAY
    assert model.spec.attempt == 1_000_001


def test_a_bind_request_says_how_many_devices_of_which_pool(make: Any) -> None:
    pod = make.pod()
    decided = stories.with_summary(pod, stories.decided_spec(make.decision()))
    waits = stories.with_summary(pod, stories.undecided_spec(pod.uid))

    assert (decided["pool"], decided["devices"]) == (pod.pool, 1)
    assert (waits["pool"], waits["devices"]) == (pod.pool, 0)


@pytest.mark.parametrize(
    "status",
    [
        stories.binding_status(BY),
        stories.succeeded_status(BY),
        stories.succeeded_status({}),
        stories.ended_status(PodEnd(True, "PodSucceeded", "n", "", ("main 0",), "m" * 9000)),
        stories.failed_status("double-sale", "x" * 9000, 2),
        stories.waiting_status(waiting(*[Reason("clause", "c" * 100, 1, 1)] * 90)),
    ],
)
def test_every_status_is_valid(make: Any, status: dict[str, Any]) -> None:
    spec = stories.undecided_spec(waiting().pod_uid)
    manifest = {"metadata": {}, "spec": spec, "status": status}

    model = parse(BindRequest, manifest)

    kept = model.model_dump(by_alias=True, exclude_unset=True)
    assert (kept["spec"], kept["status"]) == (spec, status), "a field that the server would prune"


def test_the_mode_that_decided_is_the_policys_or_the_pods_own() -> None:
    own = {"metadata": {"annotations": {PLACEMENT: "node=spread,gpu=binpack"}}}
    overridden = stories.decided_by(DecisionVersions(2, 7), COMPACT, own, None)
    without = stories.decided_by(DecisionVersions(0, 7), None, NO_OVERRIDE, None)

    assert BY["decidedBy"] == {
        "policyVersion": 2,
        "learnedVersion": 7,
        "placement": "CompactFirst",
        "policy": "standard",
    }
    assert overridden["decidedBy"]["placement"] == "node=spread,gpu=binpack"
    assert without["decidedBy"] == {
        "policyVersion": 0,
        "learnedVersion": 7,
        "placement": "FragmentationAware",
        "policy": None,
    }
    assert stories.decided_by(None, COMPACT, NO_OVERRIDE, None) == {}


@pytest.mark.parametrize(("before", "placement"), [(2, "CompactFirst"), (1, None)])
def test_a_mode_that_was_written_stays_only_with_the_version_that_it_is_of(
    before: int, placement: str | None
) -> None:
    changed = Policy("standard", "u", placement="LowLoadFirst", version=3)
    entry = BY["decidedBy"] | {"policyVersion": before}
    known = {"status": {"decidedBy": entry}}

    found = stories.decided_by(DecisionVersions(2, 7), changed, NO_OVERRIDE, known)

    assert found["decidedBy"]["placement"] == placement


def test_devices_are_shown_with_the_node_and_with_pools_of_another_name(make: Any) -> None:
    allocation = make.decision().claims[0].allocation
    (card,) = allocation.devices
    port = type(card)("net", type(card.id)("net.example", "rack", "port"))
    both = type(allocation)((card, port), "")

    assert stories.in_short(both, "node-1").startswith("gpu-0 on node-1 (")
    assert stories.in_short(both, "node-1").endswith("; port of pool rack on node-1")


def test_an_event_names_the_pod_and_is_the_same_for_the_same_reason(make: Any) -> None:
    def event(reason: str, message: str) -> dict[str, Any]:
        about = stories.pod_reference(make.pod())
        return stories.event(about, reason, message, warning=False, instance="i", now_unix_s=1e9)

    one, two = event("GPUWaiting", "a"), event("GPUWaiting", "é" * 2000)

    assert one["metadata"]["name"] == two["metadata"]["name"]
    assert one["metadata"]["name"] != event("GPUAllocated", "a")["metadata"]["name"]
    assert len(two["message"].encode()) <= 1024
    assert stories.repeated(one, two)["count"] == 2
    assert one["involvedObject"]["uid"] == "p"


def test_an_event_about_a_pool_is_where_kubectl_looks_for_it() -> None:
    pool = {"metadata": {"name": "gpu", "uid": "u"}, "spec": {}}
    about = stories.pool_reference(pool)

    made = stories.event(about, "Reason", "a", warning=True, instance="i", now_unix_s=1e9)

    assert made["metadata"]["namespace"] == "default"
    assert made["involvedObject"] == {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPUPool",
        "name": "gpu",
        "uid": "u",
    }


def test_share_ids_repeat_for_an_attempt_and_differ_between_attempts(make: Any) -> None:
    def shares(attempt: int) -> list[str | None]:
        claim = make.decision(attempt=attempt).claims[0]
        return [device.share_id for device in with_shares(claim, lambda _: True).devices]

    assert shares(1) == shares(1)
    assert shares(1) != shares(2)


def test_a_whole_card_has_no_share_id(make: Any) -> None:
    claim = make.decision().claims[0]
    whole = type(claim)(
        uid="c",
        namespace="ns",
        name="claim",
        attempt=1,
        allocation=replace(claim.allocation, devices=make.allocation(consumed={}).devices),
    )

    assert with_shares(whole, lambda _: False).devices[0].share_id is None


def test_the_wait_for_a_pools_own_taint_is_known_by_the_allocators_words() -> None:
    node = Node(name="n", uid="u", pool="p", dedicated=False)
    missing = next(
        one for one in failures(PodNeeds(), node, AssumedResources(), alone=True) if "taint" in one
    )

    assert stories.may_pass_soon(Reason("node", missing, 1, 1, "node"))
    assert not stories.may_pass_soon(Reason("node", "node is not ready", 1, 1, "node"))


def test_the_wait_for_a_new_pools_nodes_and_its_name_on_them_may_pass_soon() -> None:
    clause = 'device.attributes["tensor-fusion.ai.dra-driver"].pool_name == "p"'
    unpublished = Reason("clause", clause, 8, 8, nearest=Nearest("n/gpu", '""'))
    of_another = Reason("clause", clause, 8, 8, nearest=Nearest("n/gpu", '"q"'))

    assert stories.may_pass_soon(unpublished)
    assert not stories.may_pass_soon(of_another)
    assert stories.may_pass_soon(Reason("pool", "pool p has no node to allocate on", 0, 0, "pool"))
    assert not stories.may_pass_soon(Reason("pool", "pool p is being deleted", 0, 0, "pool"))
