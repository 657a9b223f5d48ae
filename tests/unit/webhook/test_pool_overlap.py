"""GPUPools that select nodes of other pools are stored, with a warning."""

import pytest
from tests.unit.webhook.handler.stack import Stack

from dray.messages.rpc import Lookup, LookupReply, Overlap
from dray_sandbox.apiserver.matchconditions import evaluate
from dray_webhook.decisions.pool_overlap import validate_pool
from dray_webhook.decisions.registration import webhook_configurations
from dray_webhook.decisions.review import MAX_WARNING_LENGTH, AdmissionRequest, GroupKind

QUESTION = Lookup(kind="overlap", name="all", selector=(("a", "b"),))
NODES = (("sim-1", "placement"), ("sim-2", "placement"))


def review(selector=None):
    spec = {} if selector is None else {"nodeSelector": selector}
    return AdmissionRequest(
        uid="1",
        kind=GroupKind(group="tensor-fusion.ai", version="v1", kind="GPUPool"),
        name="all",
        object={"metadata": {"name": "all"}, "spec": spec},
    )


def warnings_of(cluster, overlap):
    view = cluster.view.with_answers({QUESTION: LookupReply(overlap=overlap)})
    answer = validate_pool(review({"a": "b"}), view)
    assert answer.allowed
    return answer.warnings


@pytest.mark.parametrize(
    ("selector", "asked"),
    [({"b": "2", "a": "1"}, (("a", "1"), ("b", "2"))), ({}, ()), (None, None)],
)
def test_it_is_asked_which_nodes_the_pool_does_not_get(cluster, selector, asked):
    answer = validate_pool(review(selector), cluster.view)

    assert answer.unresolved == (Lookup(kind="overlap", name="all", selector=asked),)


def test_the_nodes_and_their_pools_are_named(cluster):
    assert warnings_of(cluster, Overlap(count=2, nodes=NODES)) == (
        "GPUPool all selects nodes that other pools have, and does not get them: "
        "sim-1 (placement), sim-2 (placement)",
    )
    assert warnings_of(cluster, Overlap(count=9, nodes=NODES))[0].endswith(
        "sim-2 (placement) and 7 more"
    )


@pytest.mark.parametrize("overlap", [None, Overlap(count=0)])
def test_nobody_is_warned_of_nothing(cluster, overlap):
    assert warnings_of(cluster, overlap) == ()


async def test_the_claim_controller_is_asked_and_its_silence_holds_up_nobody():
    stack = Stack()
    webhook = stack.new_webhook(lookup_timeout_s=0.01)
    silent = await webhook.validate_pool(review({"a": "b"}), timeout_s=5)
    assert (silent.allowed, silent.warnings) == (True, ())

    await stack.answer_lookups()
    stack.exists[QUESTION] = LookupReply(overlap=Overlap(count=2, nodes=NODES))
    answer = await stack.webhook.validate_pool(review({"a": "b"}), timeout_s=5)
    assert stack.asked == [QUESTION]
    assert len(answer.warnings[0]) <= MAX_WARNING_LENGTH
    for task in stack.tasks:
        task.cancel()


def pool(selector=None, **spec):
    return {"spec": spec | ({} if selector is None else {"nodeSelector": selector})}


@pytest.mark.parametrize(
    ("new", "old", "sent"),
    [
        (pool({}), None, True),
        (pool({"a": "b"}), pool({"a": "c"}), True),
        (pool({}), pool(), True),
        (pool({"a": "b"}, dedicated=True), pool({"a": "b"}), False),
        (pool(), pool(default=True), False),
    ],
)
def test_pools_are_sent_when_other_nodes_are_selected(new, old, sent):
    _, validating = webhook_configurations("https://127.0.0.1:8443/", b"PEM")
    (webhook,) = (one for one in validating["webhooks"] if one["name"].startswith("pools."))
    request = {"operation": "CREATE" if old is None else "UPDATE"}
    variables = {"object": new, "oldObject": old, "request": request}

    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["rules"][0]["scope"] == "Cluster"
    assert sent == all(evaluate(one["expression"], variables) for one in webhook["matchConditions"])


def deletion(kind, name):
    group_kind = GroupKind(group="tensor-fusion.ai", version="v1", kind=kind)
    return AdmissionRequest(uid="1", kind=group_kind, name=name, operation="DELETE")


@pytest.mark.parametrize(
    ("count", "warnings"),
    [
        (None, ()),
        (0, ()),
        (1, ("GPUPool p: 1 pod holds GPUs of it: ",)),
        (3, ("GPUPool p: 3 pods hold GPUs of it: ",)),
    ],
)
def test_the_deletion_of_a_pool_warns_of_the_pods_that_use_it(cluster, count, warnings):
    question = Lookup(kind="use", name="p")
    asked = validate_pool(deletion("GPUPool", "p"), cluster.view)
    view = cluster.view.with_answers({question: LookupReply(used_by=count)})

    answer = validate_pool(deletion("GPUPool", "p"), view)

    assert asked.unresolved == (question,)
    assert answer.allowed
    assert len(answer.warnings) == len(warnings)
    assert all(
        found.startswith(wanted) for found, wanted in zip(answer.warnings, warnings, strict=True)
    )


def test_the_deletion_of_a_policy_names_the_pools_that_follow_it(cluster):
    kind = "SchedulingConfigTemplate"
    followed = next(pool.template for pool in cluster.view.pools.values() if pool.template)

    answer = validate_pool(deletion(kind, followed), cluster.view)

    assert answer.allowed
    assert answer.warnings[0].startswith(f"{kind} {followed}: GPUPools use it")
    assert validate_pool(deletion(kind, "unused"), cluster.view).warnings == ()
