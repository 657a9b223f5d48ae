"""Volcano's admission rules for PodGroups and Queues."""

from typing import Any

import pytest
from tests.unit.webhook.conftest import Cluster, request_for

from dray.api.groups import GroupQueue
from dray.api.names import DRAY_SCHEDULER, VOLCANO_SCHEDULER
from dray.messages.facts import QueueObserved
from dray.messages.rpc import Lookup, LookupReply
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer
from dray_webhook.decisions.volcano import mutate_group, validate_group

ACTING = Installation("dray-system", scheduler_names=(DRAY_SCHEDULER, VOLCANO_SCHEDULER))


class Queues:
    def __init__(self, cluster: Cluster) -> None:
        self.view = cluster.view
        self.put("default")

    def put(self, name: str, **fields: Any) -> None:
        queue = GroupQueue(name, **fields)
        self.view.apply(QueueObserved(revision=1, queue=queue))

    def answer(self, kind: str, obj: Any, *, rules: Installation = ACTING, **more: Any) -> str:
        """Why it is refused; empty: it is not."""
        return self.full_answer(kind, obj, rules=rules, **more).message

    def full_answer(
        self, kind: str, obj: Any, *, rules: Installation = ACTING, **more: Any
    ) -> AdmissionAnswer:
        review = {"kind": {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": kind}}
        request = request_for(obj, **review, **more)
        answer = validate_group(request, self.view, rules)
        if answer.unresolved:
            view = self.view.with_answers(dict.fromkeys(answer.unresolved, LookupReply()))
            answer = validate_group(request, view, rules)
        return answer

    def group(self, old: Any = None, rules: Installation = ACTING, **spec: Any) -> str:
        obj = {"metadata": {"name": "train"}, "spec": spec}
        operation = "UPDATE" if old is not None else "CREATE"
        before = None if old is None else {"metadata": {"name": "train"}, "spec": old}
        return self.answer("PodGroup", obj, old=before, operation=operation, rules=rules)

    def queue(self, name: str = "q", **spec: Any) -> str:
        return self.answer("Queue", {"metadata": {"name": name}, "spec": spec})

    def delete(self, name: str) -> str:
        return self.answer("Queue", None, operation="DELETE", name=name)


@pytest.fixture
def queues(cluster: Cluster) -> Queues:
    return Queues(cluster)


def test_a_group_goes_into_an_open_queue(queues: Queues) -> None:
    assert queues.group() == ""
    assert queues.group(queue="none") == (
        'PodGroup "train" is refused: spec.queue is "none", and there is no such Queue; expected '
        "one of: default"
    )
    queues.put("shut", state="Closing")
    assert "which is Closing: it takes no groups" in queues.group(queue="shut")
    queues.put("open", state="Open")
    assert queues.group(queue="open") == ""


@pytest.mark.parametrize(("text", "warnings"), [("1ms", 1), ("5s", 0), ("soon", 0)])
def test_a_timeout_that_no_group_could_meet_is_warned_of(
    queues: Queues, text: str, warnings: int
) -> None:
    annotations = {"tensor-fusion.ai/gang-timeout": text}
    group = {"metadata": {"name": "train", "annotations": annotations}, "spec": {}}
    answer = queues.full_answer("PodGroup", group)
    assert (answer.allowed, len(answer.warnings)) == (True, warnings)


def test_a_queue_that_is_not_known_yet_is_asked_for(queues: Queues) -> None:
    group = {"metadata": {"name": "train"}, "spec": {"queue": "new"}}
    request = request_for(group, kind={"kind": "PodGroup"})
    (question,) = validate_group(request, queues.view, ACTING).unresolved
    assert question == Lookup(kind="queue", name="new")
    found = queues.view.with_answers({question: LookupReply(queue=GroupQueue("new"))})
    assert validate_group(request, found, ACTING).allowed
    unknown = queues.view.with_answers({question: LookupReply(error="away")})
    assert validate_group(request, unknown, ACTING).allowed, "its status will tell"


def test_a_group_without_queue_joins_that_of_its_namespace(queues: Queues) -> None:
    request = request_for({"metadata": {"name": "train"}}, kind={"kind": "PodGroup"})
    (question,) = mutate_group(request, queues.view, ACTING).unresolved
    assert question == Lookup(kind="namespace", name="team-a")

    def patch(reply: LookupReply) -> Any:
        return mutate_group(request, queues.view.with_answers({question: reply}), ACTING).patch

    assert patch(LookupReply()) == ()
    assert patch(LookupReply(queue_name="research")) == (
        {"op": "add", "path": "/spec", "value": {"queue": "research"}},
    )
    named = request_for({"spec": {"queue": "own"}}, kind={"kind": "PodGroup"})
    assert mutate_group(named, queues.view, ACTING).unresolved == ()


def test_a_group_goes_into_a_leaf(queues: Queues) -> None:
    queues.put("parent")
    queues.put("child", parent="parent")
    assert "which has child queues" in queues.group(queue="parent")
    assert queues.group(queue="child") == ""


def test_a_group_stays_in_a_queue_that_was_closed(queues: Queues) -> None:
    queues.put("shut", state="Closed")
    assert queues.group(old={"queue": "shut"}, queue="shut", minMember=3) == ""
    assert "is Closed" in queues.group(old={}, queue="shut")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minMember": 10_000}, "at most 4096 pods are decided together"),
        ({"minTaskMember": {"ps": -1}}, "spec.minTaskMember.ps is -1: expected 0 or more"),
        (
            {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            "spec.networkTopology has highestTierAllowed and highestTierName",
        ),
        (
            {
                "subGroupPolicy": [
                    {"networkTopology": {"highestTierAllowed": 0, "highestTierName": "rack"}}
                ]
            },
            "spec.subGroupPolicy[0].networkTopology has highestTierAllowed",
        ),
    ],
)
def test_groups_that_make_no_sense_are_refused(queues: Queues, spec: Any, words: str) -> None:
    assert words in queues.group(**spec)


def test_where_volcano_runs_its_own_webhook_decides(queues: Queues) -> None:
    assert queues.group(queue="none", rules=Installation("dray-system")) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"guarantee": {"resource": {"cpu": "5"}}, "deserved": {"cpu": "4"}},
            "spec.guarantee.resource has 5 of cpu, more than 4 of spec.deserved",
        ),
        (
            {"deserved": {"cpu": "5"}, "capability": {"cpu": "4"}},
            "spec.deserved has 5 of cpu, more than 4 of spec.capability",
        ),
        (
            {"guarantee": {"resource": {"cpu": "5"}}, "capability": {"cpu": "4"}},
            "spec.guarantee.resource has 5 of cpu, more than 4 of spec.capability",
        ),
        ({"capability": {"cpu": "many"}, "deserved": {"cpu": "1"}}, "an amount can't be read"),
        (
            {"guarantee": {"resource": {"cpu": "5"}}, "parent": "root"},
            "spec.guarantee is set, and spec.deserved is not: expected at least as much of it",
        ),
        ({"parent": "none"}, 'spec.parent is "none", and there is no such Queue'),
        ({"parent": "q"}, "which is below the queue itself"),
    ],
)
def test_queues_that_make_no_sense_are_refused(queues: Queues, spec: Any, words: str) -> None:
    assert words in queues.queue(**spec)


def test_children_share_what_their_parent_has(queues: Queues) -> None:
    queues.put("top", deserved={"cpu": "10"})
    queues.put("a", parent="top", deserved={"cpu": "6"})
    assert queues.queue("b", parent="top", deserved={"cpu": "4"}) == ""
    assert 'deserved of all queues below "top" is 11 of cpu, more than its own 10' in (
        queues.queue("b", parent="top", deserved={"cpu": "5"})
    )
    assert queues.queue("a", parent="top", deserved={"cpu": "10"}) == "", "its own former share"


def test_a_circle_of_queues_is_refused(queues: Queues) -> None:
    queues.put("a", parent="b")
    queues.put("b", parent="c")
    assert "which is below the queue itself" in queues.queue("c", parent="a")


def test_a_queue_with_running_groups_takes_no_queues_below_it(queues: Queues) -> None:
    queues.put("busy", pods=3)
    assert "whose own groups have 3 running pods" in queues.queue("q", parent="busy")


def test_only_empty_queues_are_deleted(queues: Queues) -> None:
    for name in ("default", "root"):
        assert "groups without spec.queue need it" in queues.delete(name)
    queues.put("parent")
    queues.put("child", parent="parent", pods=2)
    assert "it has child queues: child" in queues.delete("parent")
    assert "2 pods of its groups run" in queues.delete("child")
    queues.put("empty")
    assert queues.delete("empty") == ""
