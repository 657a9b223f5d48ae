"""No secret of an object is recorded, and what is recorded is decided as the object was."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counted import our_pods
from tests.unit.recording.objects import FIXED, claims, nodes, pods
from tests.unit.recording.secrets import SECRET, salted
from tests.unit.webhook.conftest import new_view

from dray.api.claims import Allocation
from dray.api.groups import KUBERNETES, VOLCANO
from dray.api.pods import GroupKey
from dray.bus.backlog import Backlog
from dray.bus.memory import MemoryBus
from dray.kube.convert import claim_from, node_from, pod_from
from dray.kube.ports import NODES, POOLS, SLICES, Changed, Deleted, Listed, Resource
from dray.messages.base import decode
from dray.messages.decisions import ClaimDecision, PodDecision
from dray.messages.facts import PriorityClassObserved
from dray.messages.inputs import MUTATE_POD, Reviewed
from dray.recording.questions import name_of
from dray.recording.redaction import redacted
from dray_claim_controller.accounting_claims.decisions import AccountingClaim
from dray_claim_controller.cache.cached_objects import cached_pod
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import WATCHED, read
from dray_claim_controller.cache.rule_recorder import RecordedRule, RuleRecorder
from dray_claim_controller.cache.snapshot import take_snapshot
from dray_claim_controller.execution.decisions.adoption import (
    GroupRollbacks,
    UnfinishedPlacements,
    UnfinishedPods,
    adopted,
)
from dray_claim_controller.execution.decisions.in_flight_allocations import CommitCheck
from dray_claim_controller.execution.decisions.joint_step import JointStep
from dray_claim_controller.execution.decisions.next_step import NextStep
from dray_claim_controller.execution.decisions.rollback_rules import (
    PodVoidAnnotation,
    RollbackCheck,
    VoidCheck,
)
from dray_claim_controller.execution.decisions.unschedulable import Cleared, Refused
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.garbage.decisions import Garbage
from dray_claim_controller.groups.decisions.rules import (
    DueForGroup,
    GroupStatus,
    MissingGroups,
    QueueStatuses,
)
from dray_claim_controller.journal_replayer import JournalReplayer
from dray_claim_controller.owners.decisions import LateAllocations, StrandedPods
from dray_claim_controller.pools.decisions.rules import PoolStatus, Taints
from dray_claim_controller.pools.decisions.usage import PolicyFinalizer, PoolRelease
from dray_claim_controller.preparation.decisions import AwaitsPreparation
from dray_claim_controller.templates.decisions import Affected, Template
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.decisions.rules import (
    ClaimLiveCheck,
    PrepareClaim,
    PublishSlices,
    replay_rule,
)
from dray_node_agent.rule_recorder import AgentRuleRecorder
from dray_webhook.decisions.dispatch import (
    MUTATE_GROUP,
    PATHS,
    VALIDATE_GROUP,
    VALIDATE_POD,
    decide,
)
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionRequest, write_review
from dray_webhook.service.recorder import ReviewRecorder, replay_answer

RULES = Installation("dray-system", ("claim-controller",))
RESOURCES = {resource.plural: resource for resource in WATCHED}
OBJECTS: dict[str, st.SearchStrategy[Any]] = {
    "pods": pods(),
    "resourceclaims": claims(),
    "nodes": nodes(),
    **{plural: st.just(obj) for plural, obj in FIXED.items()},
}

REVIEWED = {
    MUTATE_POD: ["pods"],
    VALIDATE_POD: ["pods"],
    MUTATE_GROUP: ["podgroups", "queues"],
    VALIDATE_GROUP: ["podgroups", "queues"],
}
"""By path of a review, the kinds of its objects; claims where there are others."""


def test_every_kind_that_is_watched_has_a_list_of_what_is_recorded() -> None:
    assert {*OBJECTS} == {*RESOURCES}
    for plural in RESOURCES:
        assert redacted(plural, {"metadata": {"name": "a"}}) == {"metadata": {"name": "a"}}
    with pytest.raises(KeyError):
        redacted("secrets", {"data": {"password": SECRET}})


@pytest.mark.parametrize("odd", [7, SECRET, [SECRET], {"a": SECRET}, True, None, "", [], {}])
@pytest.mark.parametrize("resource", [NODES, SLICES, POOLS], ids=lambda one: one.plural)
@pytest.mark.parametrize("part", ["spec", "status"])
def test_what_can_t_be_read_can_t_be_read_of_a_recording_either(
    resource: Resource, part: str, odd: Any
) -> None:
    whole = {"metadata": {"name": "a", "uid": "a"}, part: odd}
    kept = redacted(resource.plural, whole)
    assert redacted(resource.plural, kept) == kept
    assert read(resource, kept) == read(resource, whole)


@pytest.mark.parametrize("odd", [7, SECRET, [SECRET], [7], {"a": SECRET}])
@pytest.mark.parametrize("part", ["taints", "conditions"])
def test_lists_of_another_shape_hold_no_secret_and_are_as_unreadable(part: str, odd: Any) -> None:
    where = {"taints": "spec", "conditions": "status"}[part]
    whole = {"metadata": {"name": "a", "uid": "a"}, where: {part: odd}}
    kept = redacted("nodes", whole)
    assert part == "taints" or SECRET not in msgspec.json.encode(kept).decode()
    assert read(NODES, kept) == read(NODES, whole)


@given(st.data())
def test_what_is_recorded_of_an_object_is_read_as_the_object_and_has_no_secret(
    data: st.DataObject,
) -> None:
    plural = data.draw(st.sampled_from(sorted(OBJECTS)))
    whole = salted(plural, data.draw(OBJECTS[plural]), data.draw)
    kept = redacted(plural, whole)
    assert SECRET not in msgspec.json.encode(kept).decode()
    assert redacted(plural, kept) == kept
    if plural == "pods":
        assert pod_from(kept) == pod_from(whole)
        one, other = (cached_pod(obj, pod_from(obj), 1) for obj in (kept, whole))
        assert msgspec.structs.replace(one, text=b"") == msgspec.structs.replace(other, text=b"")
    elif plural == "resourceclaims":
        assert claim_from(kept) == claim_from(whole)
    elif plural == "nodes":
        assert node_from(kept) == node_from(whole)


@given(st.data())
async def test_a_recorded_review_has_no_secret_and_is_answered_as_it_was(
    data: st.DataObject,
) -> None:
    path = data.draw(st.sampled_from(PATHS))
    plural = data.draw(st.sampled_from(REVIEWED.get(path, ["resourceclaims"])))
    strategy = pods(admitted=False) if plural == "pods" else OBJECTS[plural]
    operation = data.draw(st.sampled_from(["CREATE", "UPDATE"]))
    obj = salted(plural, data.draw(strategy), data.draw)
    old = None
    if operation == "UPDATE":
        old = copy.deepcopy(obj)
        if data.draw(st.booleans()):
            old["metadata"]["annotations"] = data.draw(strategy)["metadata"].get("annotations")
    request = AdmissionRequest.model_validate(
        {
            "uid": "r",
            "kind": {"kind": RESOURCES[plural].kind},
            "namespace": "team",
            "operation": operation,
            "object": obj,
            "oldObject": old,
        }
    )
    view = new_view()
    view.apply(PriorityClassObserved(revision=1, name="tensor-fusion-high", value=300))
    ids = AdmissionIds("r", "00-" + "a" * 32 + "-" + "b" * 16 + "-00")
    answer = decide(path, request, view, RULES, ids)

    backlog = Backlog(MemoryBus(), capacity=1, what="inputs")
    ReviewRecorder(backlog, "w", RULES).record(request, view, ids, {}, answer, path=path)
    ((message, _),) = backlog._waiting
    reviewed = decode(message.payload, Reviewed)

    assert SECRET.encode() not in message.payload
    assert reviewed.redacted
    again = msgspec.json.decode(msgspec.json.encode(write_review("r", answer)))
    assert replay_answer(reviewed, view) == answer
    assert again == reviewed.answer


class Noted:
    """What a recorder writes, as the bytes that the bus would get."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, bytes, bytes]] = []

    def consumed(self, about: str, data: Any) -> None:
        self.lines.append(("consumed", about, msgspec.json.encode(data), b""))

    def decided(self, about: str, data: Any, answer: Any, *, polled: str = "") -> None:
        line = ("decided", about, msgspec.json.encode(data), msgspec.json.encode(answer))
        self.lines.append(line)

    def text(self) -> bytes:
        return b"".join(data + answer for _, _, data, answer in self.lines)


def questions(picture: ObjectCache) -> list[RecordedRule[Any]]:
    """One of everything that a claim-controller asks itself about this picture."""
    asked: list[RecordedRule[Any]] = [
        Publish(key=key, revision=revision) for key, revision in picture.take_dirty()
    ]
    asked += [Template(pod_uid=uid) for uid in picture.pods]
    asked += [Taints(node=name, pool="shared") for name in picture.plain["nodes"]]
    asked += [
        PoolStatus(pool=name, nodes=tuple(picture.plain["nodes"]), now_unix_s=5.0)
        for name in picture.plain["gpupools"]
    ]
    asked += [PoolRelease(pool=name, reserved=()) for name in picture.plain["gpupools"]]
    asked += [
        PolicyFinalizer(policy=name)
        for name in picture.plain["schedulingconfigtemplates"] or ("none",)
    ]
    asked += [
        Affected(namespace="team", name="base", dray_namespace="dray-system", bases=("team/base",)),
        Cleared(),
        *(AwaitsPreparation(pod_uid=uid) for uid in picture.pods),
        *(AccountingClaim(pod_uid=uid) for uid in picture.pods),
        Refused(after_s=0.0, now_s=5.0, since_s={}),
        UnfinishedPods(after_s=0.0, now_s=5.0, since_s={}),
        UnfinishedPlacements(pods=tuple(picture.pods)),
        Garbage(after_s=0.0, now_s=5.0, since_s={}),
        StrandedPods(),
        LateAllocations(recalled=(("n1", 1.0),)),
        GroupRollbacks(pods=tuple(picture.pods)),
        MissingGroups(),
        *(QueueStatuses(acts_for_volcano=acts) for acts in (False, True)),
    ]
    groups = [GroupKey(VOLCANO, *name.split("/")) for name in picture.plain["podgroups"]]
    natives = picture.plain["podgroups.scheduling.k8s.io"]
    for group in (*groups, *(GroupKey(KUBERNETES, *name.split("/")) for name in natives)):
        asked += [
            GroupStatus(group=group, waiting="full", now_unix_s=5.0),
            *(
                DueForGroup(group=group, below_s=below_s, timeout_s=9.0, grace_s=9.0)
                for below_s in (0.0, 9.0)
            ),
        ]
    for seen in picture.claims.values():
        claim = seen.claim
        asked += [
            VoidCheck(claim_uid=claim.uid, attempt=1_000_001),
            RollbackCheck(claim_uid=claim.uid, attempt=7, pod_uid="p1-uid", binder="dray"),
        ]
        wanted = ClaimDecision(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            attempt=1_000_001,
            allocation=claim.allocation or Allocation((), "n1"),
        )
        decision = PodDecision(
            pod_uid="p1-uid",
            namespace="team",
            name="p1",
            node="n1",
            binder="dray",
            claims=(wanted,),
        )
        asked += [
            NextStep(decision=decision, epoch=1),
            NextStep(decision=decision, epoch=1, committed=(claim.uid,), marked=(claim.uid,)),
            CommitCheck(claim=wanted),
            PodVoidAnnotation(decision=decision),
            JointStep(decisions=(decision,), size=1, timeout_s=60.0, age_s=1.0),
        ]
    asked += [
        NextStep(decision=order.decision, epoch=1)
        for pod in our_pods(picture)
        if (order := adopted(picture, pod)) is not None
    ]
    return asked


@given(st.data())
def test_a_claim_controllers_journal_has_no_secret_and_is_answered_as_it_was(
    data: st.DataObject,
) -> None:
    notes = Noted()
    recorder = RuleRecorder(ObjectCache(), notes)
    more = data.draw(st.lists(st.sampled_from(sorted(OBJECTS)), max_size=6))
    for revision, plural in enumerate(("nodes", "resourceclaims", "pods", *more), 1):
        obj = salted(plural, data.draw(OBJECTS[plural]), data.draw)
        obj["metadata"]["resourceVersion"] = str(revision)
        match data.draw(st.sampled_from(["listed", "changed", "changed", "answered", "deleted"])):
            case "listed":
                recorder.apply(RESOURCES[plural], Listed((obj,), revision))
            case "changed":
                recorder.apply(RESOURCES[plural], Changed(obj))
            case "answered":
                recorder.apply_response(RESOURCES[plural], obj)
            case "deleted":
                recorder.apply(RESOURCES[plural], Deleted(obj))
    whole = msgspec.json.encode(take_snapshot(recorder.cache))
    begun = len(notes.lines)
    for question in questions(recorder.cache):
        recorder.evaluate(question)

    assert SECRET.encode() not in notes.text() + whole
    followed, begins_here = JournalReplayer(), JournalReplayer()
    begins_here.know(msgspec.json.decode(whole))
    for number, (what, about, text, answer) in enumerate(notes.lines):
        read = msgspec.json.decode(text)
        if what == "consumed":
            followed.consume(about, read)
            continue
        assert number >= begun
        for again in (followed, begins_here):
            assert msgspec.json.encode(again.decide(about, read)) == answer, about


def test_every_question_of_the_claim_controller_is_asked_here() -> None:
    """But for those that are asked of no object."""
    from dray_claim_controller.journal_replayer import QUESTIONS

    picture = ObjectCache()
    for plural, obj in FIXED.items():
        picture.apply(RESOURCES[plural], Changed(obj))
    result = {"request": "r", "driver": "d", "pool": "n1", "device": "a"}
    claim = {
        "metadata": {"name": "c1", "namespace": "team", "uid": "c1-uid"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    picture.apply(RESOURCES["resourceclaims"], Changed(claim))
    node = {"metadata": {"name": "n1", "uid": "n1"}}
    picture.apply(RESOURCES["nodes"], Changed(node))
    pod = {"metadata": {"name": "p1", "namespace": "team", "uid": "p"}, "spec": {}}
    picture.apply(RESOURCES["pods"], Changed(pod))
    asked = {name_of(type(question)) for question in questions(picture)}
    assert {*QUESTIONS} - asked == {"must-begin", "next-epoch"}


@given(st.data())
def test_a_node_agents_journal_has_no_secret_and_is_answered_as_it_was(
    data: st.DataObject,
) -> None:
    notes = Noted()
    recorder = AgentRuleRecorder(notes)
    snapshot, state = GpuSnapshot((Gpu("GPU-0", "A100", 80 * 2**30),), "550.0"), NodeState("n1")
    existing = [
        salted("resourceslices", one, data.draw)
        for one in slices(snapshot, state, generation=data.draw(st.integers(1, 2)))
    ]
    for one in existing:
        one["metadata"] |= {"uid": "s-uid", "resourceVersion": "5"}
    other = salted("resourceslices", FIXED["resourceslices"], data.draw)
    claim = salted("resourceclaims", data.draw(claims()), data.draw)
    published = tuple(data.draw(st.sampled_from([existing, [*existing, other], []])))
    recorder.evaluate(PublishSlices(snapshot=snapshot, state=state, existing=published))
    recorder.evaluate(
        PrepareClaim(claim=claim, uid="c1-uid", node="n1", snapshot=snapshot, state=state)
    )
    recorder.evaluate(ClaimLiveCheck(uid="c1-uid", claim=claim))
    recorder.evaluate(ClaimLiveCheck(uid="c1-uid", claim=None))

    assert SECRET.encode() not in notes.text()
    for _, about, text, answer in notes.lines:
        again = replay_rule(about, msgspec.json.decode(text))
        assert msgspec.json.decode(msgspec.json.encode(again)) == msgspec.json.decode(answer)


def test_a_recorded_gpu_keeps_its_field_names() -> None:
    line = {"cards": [{"uuid": "GPU-0", "product": "A100", "memory_bytes": 1, "trouble": "xid-79"}]}

    snapshot = msgspec.convert(line, GpuSnapshot)

    assert snapshot.gpus[0].health_error == "xid-79"
    assert msgspec.to_builtins(snapshot)["cards"][0]["trouble"] == "xid-79"


def test_a_pod_s_redaction_names_what_is_left_out_by_saying_nothing_of_it() -> None:
    pod = {
        "metadata": {"name": "p", "annotations": {"a": SECRET, "tensor-fusion.ai/qos": "high"}},
        "spec": {
            "containers": [{"name": "app", "env": [{"name": "PASSWORD", "value": SECRET}]}],
            "volumes": [{"name": "v", "csi": {"volumeAttributes": {"token": SECRET}}}],
        },
    }
    assert redacted("pods", pod) == {
        "metadata": {"name": "p", "annotations": {"tensor-fusion.ai/qos": "high"}},
        "spec": {"containers": [{"name": "app"}], "volumes": [{"name": "v", "csi": {}}]},
    }
    assert MUTATE_POD in PATHS
