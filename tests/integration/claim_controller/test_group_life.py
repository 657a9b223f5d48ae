"""PodGroups from their pods' creation to their end, with an allocator, in virtual time."""

from typing import Any

from tests.integration.claim_controller.virtual import VirtualWorld, in_virtual_time

from dray.api.names import GANG_ENABLED, GANG_LOSS_POLICY, GANG_MIN_MEMBERS, OWNER_DRAY
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import (
    CLAIMS,
    JOBS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    QUEUES,
    ConflictError,
    KubeUnavailableError,
    Object,
    RefusedError,
)
from dray_claim_controller.settings import GroupSettings

WHOLE = "312"
NATIVE = {"schedulingPolicy": {"gang": {"minCount": 2}}}


async def group(world: VirtualWorld, name: str = "train", **spec: Any) -> None:
    metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
    await world.kube.create(POD_GROUPS, {"metadata": metadata, "spec": spec}, "default")


async def pods(world: VirtualWorld, *names: str, **more: Any) -> None:
    for name in names:
        await world.pod(name, shape=world.shape(WHOLE), **{"group": "train", **more})


def status(world: VirtualWorld, name: str = "train", resource: Any = POD_GROUPS) -> Object:
    found: Object = world.kube.store.get(resource, name, "default").get("status") or {}
    return found


def condition(world: VirtualWorld, kind: str, resource: Any = POD_GROUPS) -> Object:
    conditions = status(world, resource=resource).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def nodes(world: VirtualWorld) -> dict[str, str]:
    return {
        obj["metadata"]["name"]: obj["spec"]["nodeName"]
        for obj in world.kube.store.of(PODS).values()
        if obj["spec"].get("nodeName")
    }


def gated(world: VirtualWorld) -> list[str]:
    found = world.kube.store.of(PODS).values()
    return [one["metadata"]["name"] for one in found if one["spec"].get("schedulingGates")]


async def run_pod(world: VirtualWorld, name: str, phase: str = "Running") -> None:
    await world.kube.patch(
        PODS, name, {"status": {"phase": phase}}, "default", subresource="status"
    )


async def lose(world: VirtualWorld, name: str) -> None:
    """Delete a pod, and with it its claim."""
    claim = await world.claim_of(name)
    await world.kube.delete(PODS, name, "default", grace_period_s=0)
    await world.kube.delete(CLAIMS, claim, "default")
    await world.kube.patch(CLAIMS, claim, {"metadata": {"finalizers": None}}, "default")


def is_evicted(world: VirtualWorld, name: str) -> bool:
    return bool(world.kube.store.get(PODS, name, "default")["metadata"].get("deletionTimestamp"))


def refuse_to_bind(world: VirtualWorld, name: str) -> None:
    world.kube.refuse(InjectedRefusal(RefusedError("no", 403), "bind", PODS, name=name))


async def run_two(world: VirtualWorld) -> None:
    """A group of two pods runs."""
    await group(world, minMember=2)
    await pods(world, "a", "b")
    await world.until(lambda: len(nodes(world)) == 2, "both are bound")
    for name in ("a", "b"):
        await run_pod(world, name)
    await world.until(lambda: status(world).get("phase") == "Running", "it runs")


def test_a_group_starts_as_a_whole_and_its_status_follows() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await group(world, minMember=2)
        await pods(world, "a")
        await world.until(lambda: status(world).get("pending") == 1, "it is counted")
        await world.until(
            lambda: condition(world, "Unschedulable").get("reason") == "NotEnoughTasks",
            "the reason is written",
        )
        await world.clock.sleep(600)
        assert nodes(world) == {}
        await pods(world, "b")
        await world.until(lambda: len(nodes(world)) == 2, "both are bound")
        for name in ("a", "b"):
            await run_pod(world, name)
        await world.until(lambda: status(world).get("running") == 2, "both are counted")
        assert status(world)["phase"] == "Running"
        assert condition(world, "Scheduled")["message"] == ""

    in_virtual_time(scenario)


def test_a_group_that_can_not_fit_says_so_and_holds_nothing() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await group(world, minMember=3)
        await pods(world, "a", "b", "c")
        await world.until(
            lambda: (
                condition(world, "Unschedulable").get("reason") == "NotEnoughResources"
                and "2 of 3" in condition(world, "Unschedulable")["message"]
            ),
            "the reason is written",
        )
        assert world.allocations() == []

    in_virtual_time(scenario)


def test_a_group_that_stays_halfway_gives_all_back() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await group(
            world, minMember=2, metadata={"annotations": {"tensor-fusion.ai/gang-timeout": "20s"}}
        )
        refuse_to_bind(world, "b")
        await pods(world, "a", "b")
        await world.until(lambda: "a" in nodes(world), "one is bound")
        begin = world.clock.monotonic_s()
        await run_pod(world, "a")
        await world.until(lambda: status(world).get("phase") == "Unknown", "it is halfway")
        await world.until(lambda: is_evicted(world, "a"), "the first is evicted", 100)
        assert 15 < world.clock.monotonic_s() - begin < 25

    in_virtual_time(scenario)


def test_a_group_that_ran_waits_for_the_lost_pods_successor() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await run_two(world)
        await lose(world, "b")
        await world.clock.sleep(30)
        await pods(world, "b2")
        await world.until(lambda: "b2" in nodes(world), "the successor is bound")
        await world.clock.sleep(120)
        assert not is_evicted(world, "a")

    in_virtual_time(scenario)


def test_after_the_grace_period_the_rest_of_a_group_is_evicted() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await run_two(world)
        await lose(world, "b")
        begin = world.clock.monotonic_s()
        await world.until(lambda: is_evicted(world, "a"), "the other is evicted", 100)
        assert 55 < world.clock.monotonic_s() - begin < 65

    in_virtual_time(scenario)


def test_a_pod_without_gpus_starts_with_the_others() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await group(world, minMember=3)
        await world.rider("ps", "train")
        await pods(world, "a")
        await world.until(lambda: status(world).get("pending") == 2, "two wait")
        await world.clock.sleep(60)
        assert gated(world) == ["ps"]
        await pods(world, "b")
        await world.until(lambda: len(nodes(world)) == 2, "both are bound")
        await world.until(lambda: not gated(world), "the gate is removed")

    in_virtual_time(scenario)


async def shared(world: VirtualWorld) -> None:
    await world.pool("shared")
    for number in (1, 2):
        await world.node(f"shared-{number}", "shared", cards=1)


async def ungated(world: VirtualWorld) -> None:
    """A group of two pods on shared nodes; kube-scheduler has bound neither yet."""
    await shared(world)
    world.allocate()
    await group(world, minMember=2)
    more = {"gated": True, "shape": world.shape(WHOLE, pool="shared"), "pool": "shared"}
    for name in ("a", "b"):
        await world.pod(name, group="train", **more)
    await world.until(lambda: not gated(world), "the gates are removed")


async def bind(world: VirtualWorld, name: str) -> None:
    """As kube-scheduler does."""
    uid = world.kube.store.get(PODS, name, "default")["metadata"]["uid"]
    await world.kube.bind(name, "default", uid=uid, node="shared-1")


def test_on_shared_nodes_gates_go_together_and_the_condition_says_best_effort() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await ungated(world)
        for name in ("a", "b"):
            await bind(world, name)
        await world.until(
            lambda: condition(world, "Scheduled").get("message", "").startswith("best effort"),
            "the condition says so",
        )
        await world.clock.sleep(600)
        assert not is_evicted(world, "a")

    in_virtual_time(scenario)


def test_on_shared_nodes_half_a_group_ends_at_the_deadline() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await ungated(world)
        begin = world.clock.monotonic_s()
        await bind(world, "a")
        await world.until(lambda: is_evicted(world, "a"), "the bound pod is evicted", 400)
        assert 295 < world.clock.monotonic_s() - begin < 305
        assert ("default", "b") not in world.kube.store.of(PODS), "it had no node, and is gone"

    in_virtual_time(scenario)


def test_on_shared_nodes_pods_that_are_bound_stay_though_a_watch_is_behind() -> None:
    async def scenario(world: VirtualWorld) -> None:
        behind = world.kube.peer()
        await world.running.pop(0).stop()
        await world.ready(await world.start("behind", kube=behind))
        await ungated(world)
        behind.hold_watches()
        for name in ("a", "b"):
            await bind(world, name)
        await world.clock.sleep(310)
        assert not any(is_evicted(world, name) for name in "ab")

    in_virtual_time(scenario)


def test_a_pod_with_a_budget_keeps_no_others_of_a_group_that_ends() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await ungated(world)
        await bind(world, "a")
        budget = ConflictError("the budget forbids it", 429)
        world.kube.refuse(InjectedRefusal(budget, "evict", PODS, name="a"))
        await world.until(
            lambda: ("default", "b") not in world.kube.store.of(PODS), "the other is evicted", 400
        )
        assert not is_evicted(world, "a")

    in_virtual_time(scenario)


def test_while_the_server_is_away_no_eviction_follows_another_without_a_new_look(
    monkeypatch: Any,
) -> None:
    """Each may take half a minute, and the group may run when the server is back."""
    tried: list[str] = []

    async def scenario(world: VirtualWorld) -> None:
        await ungated(world)
        away = KubeUnavailableError("no answer")
        world.kube.refuse(InjectedRefusal(away, "version", PODS))

        async def evict(_: Any, pod: str, __: str, **___: str) -> None:
            tried.append(pod)
            raise away

        monkeypatch.setattr(type(world.kube), "evict", evict)
        await world.until(lambda: bool(tried), "the server is asked", 400)
        await bind(world, "a")
        await bind(world, "b")
        await world.clock.sleep(60)
        assert len(tried) == 1

    in_virtual_time(scenario)


def test_a_native_group_gets_its_condition_and_all_its_gates_go() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await shared(world)
        world.allocate()
        metadata = {"name": "train", "namespace": "default"}
        await world.kube.create(
            NATIVE_POD_GROUPS, {"metadata": metadata, "spec": NATIVE}, "default"
        )
        for name in ("a", "b", "extra"):
            await world.pod(
                name,
                gated=True,
                shape=world.shape(WHOLE, pool="shared"),
                pool="shared",
                native="train",
            )
        await world.until(lambda: not gated(world), "all gates are removed")
        found = world.kube.store.of(PODS).values()
        assert len(found) == 3

    in_virtual_time(scenario)


def test_a_native_group_on_dedicated_nodes_is_scheduled_for_good() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        metadata = {"name": "train", "namespace": "default"}
        await world.kube.create(
            NATIVE_POD_GROUPS, {"metadata": metadata, "spec": NATIVE}, "default"
        )
        await pods(world, "a", native="train", group="")
        kind = "PodGroupInitiallyScheduled"
        await world.until(
            lambda: condition(world, kind, NATIVE_POD_GROUPS).get("status") == "False",
            "it waits",
        )
        await pods(world, "b", native="train", group="")
        await world.until(lambda: len(nodes(world)) == 2, "both are bound")
        await world.until(
            lambda: condition(world, kind, NATIVE_POD_GROUPS).get("status") == "True", "it runs"
        )
        await lose(world, "b")
        await world.clock.sleep(600)
        assert condition(world, kind, NATIVE_POD_GROUPS)["status"] == "True"
        assert not is_evicted(world, "a"), "Kubernetes' groups keep what is left of them"

    in_virtual_time(scenario)


async def job(world: VirtualWorld, spec: Object, *names: str) -> str:
    """A Job with pods that ask for a group; its name."""
    made = {"metadata": {"name": "job", "namespace": "default"}, "spec": spec}
    uid = (await world.kube.create(JOBS, made, "default"))["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid}
    metadata = {
        "annotations": {GANG_ENABLED: "true"},
        "ownerReferences": [{**reference, "controller": True}],
    }
    await pods(world, *names, group=f"podgroup-{uid}")
    for name in names:
        assert world.kube.store.get(PODS, name, "default")["spec"].get("nodeName") is None
        await world.kube.patch(PODS, name, {"metadata": metadata}, "default")
    group = f"podgroup-{uid}"
    await world.until(lambda: group in world.names(POD_GROUPS), "its group is created")
    if len(names) < spec["parallelism"]:
        return group
    await world.until(lambda: len(nodes(world)) == len(names), "all are bound")
    await world.until(lambda: status(world, group).get("phase") == "Running", "it runs")
    return group


def minimum(world: VirtualWorld, name: str) -> int:
    found: int = world.kube.store.get(POD_GROUPS, name, "default")["spec"]["minMember"]
    return found


def test_a_jobs_pods_get_a_group_of_its_size() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        name = await job(world, {"parallelism": 2}, "a", "b")
        assert minimum(world, name) == 2

    in_virtual_time(scenario)


def test_a_job_that_is_scaled_down_keeps_its_pods() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        name = await job(world, {"parallelism": 2}, "a", "b")
        await world.kube.patch(JOBS, "job", {"spec": {"parallelism": 1}}, "default")
        await lose(world, "b")
        await world.until(lambda: minimum(world, name) == 1, "the minimum is lowered")
        await world.clock.sleep(600)
        assert not is_evicted(world, "a")

    in_virtual_time(scenario)


def test_a_job_that_waits_and_is_scaled_down_starts() -> None:
    """Also if none of its pods changes with it: a quota may have kept the others away."""

    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        name = await job(world, {"parallelism": 2}, "a")
        assert minimum(world, name) == 2
        await world.clock.sleep(600)
        assert nodes(world) == {}
        await world.kube.patch(JOBS, "job", {"spec": {"parallelism": 1}}, "default")
        await world.until(lambda: "a" in nodes(world), "it is bound", 60)
        assert minimum(world, name) == 1

    in_virtual_time(scenario)


def test_only_an_owner_that_says_how_many_pods_it_has_lowers_a_minimum() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        name = await job(world, {"parallelism": 2}, "a", "b")
        uid = name.removeprefix("podgroup-")
        owner = {"apiVersion": "example.com/v1", "kind": "Run", "name": "run", "uid": uid}
        references = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
        await world.kube.patch(PODS, "a", references, "default")
        await lose(world, "b")
        await world.clock.sleep(30)
        assert minimum(world, name) == 2

    in_virtual_time(scenario)


def test_a_minimum_that_pods_state_does_not_follow_their_job() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        name = await job(world, {"parallelism": 2}, "a", "b")
        states = {"metadata": {"annotations": {GANG_MIN_MEMBERS: "2"}}}
        await world.kube.patch(PODS, "a", states, "default")
        await world.kube.patch(JOBS, "job", {"spec": {"parallelism": 1}}, "default")
        await lose(world, "b")
        await world.until(lambda: is_evicted(world, "a"), "the other is evicted", 100)
        assert minimum(world, name) == 2

    in_virtual_time(scenario)


async def act_for_volcano(world: VirtualWorld) -> None:
    names = (OWNER_DRAY, "volcano")
    await world.running.pop(0).stop()
    await world.ready(await world.start("two", groups=GroupSettings(scheduler_names=names)))


def test_a_group_that_was_evicted_waits_in_the_queue_again() -> None:
    """Job controllers create no pod of a group whose phase is Pending."""

    async def scenario(world: VirtualWorld) -> None:
        await act_for_volcano(world)
        world.allocate()
        await run_two(world)
        await lose(world, "b")
        await world.until(lambda: is_evicted(world, "a"), "the other is evicted", 100)
        await lose(world, "a")
        await world.until(lambda: status(world).get("phase") == "Inqueue", "it waits again")
        await pods(world, "c", "d")
        await world.until(lambda: {"c", "d"} <= nodes(world).keys(), "successors are bound")

    in_virtual_time(scenario)


def test_where_volcano_is_absent_queues_are_written_and_empty_groups_have_a_phase() -> None:
    async def scenario(world: VirtualWorld) -> None:
        await act_for_volcano(world)
        await world.until(lambda: "default" in world.names(QUEUES), "the queue is created", 60)
        await group(world, minMember=2)
        await world.until(lambda: status(world).get("phase") == "Inqueue", "it has a phase")

        def counted() -> bool:
            found = world.kube.store.get(QUEUES, "default", "").get("status") or {}
            return (found.get("state"), found.get("inqueue")) == ("Open", 1)

        await world.until(counted, "the queue counts it")

    in_virtual_time(scenario)


def test_an_owner_that_is_gone_is_asked_for_less_and_less_often(monkeypatch: Any) -> None:
    """Else the pods of one tenant, who may write any owner, cost requests with every change."""
    asked: list[str] = []

    async def scenario(world: VirtualWorld) -> None:
        get = world.kube.get

        async def counted(resource: Any, name: str, namespace: str = "", **more: Any) -> Object:
            asked.extend([name] * (resource is JOBS))
            found: Object = await get(resource, name, namespace, **more)
            return found

        monkeypatch.setattr(
            type(world.kube), "get", lambda _, *args, **more: counted(*args, **more)
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "u1"}
        await world.pod("a", shape=world.shape(WHOLE), group="podgroup-u1")
        metadata = {
            "annotations": {GANG_ENABLED: "true"},
            "ownerReferences": [{**owner, "controller": True}],
        }
        await world.kube.patch(PODS, "a", {"metadata": metadata}, "default")
        for number in range(120):
            labels = {"metadata": {"labels": {"news": str(number)}}}
            await world.kube.patch(PODS, "a", labels, "default")
            await world.clock.sleep(1)
        assert 1 <= len(asked) <= 10

    in_virtual_time(scenario)


def count_owners(world: VirtualWorld, monkeypatch: Any) -> list[str]:
    """The names of Jobs that are asked for from now on."""
    asked: list[str] = []
    get = world.kube.get

    async def counted(resource: Any, name: str, namespace: str = "", **more: Any) -> Object:
        asked.extend([name] * (resource is JOBS))
        assert len(asked) < 1000
        found: Object = await get(resource, name, namespace, **more)
        return found

    monkeypatch.setattr(type(world.kube), "get", lambda _, *args, **more: counted(*args, **more))
    return asked


def test_owners_that_own_each_other_are_asked_for_once(monkeypatch: Any) -> None:
    async def scenario(world: VirtualWorld) -> None:
        made = {
            name: await world.kube.create(
                JOBS, {"metadata": {"name": name, "namespace": "default"}, "spec": {}}, "default"
            )
            for name in ("one", "two")
        }
        controllers = {
            name: {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": obj["metadata"]["uid"],
                "controller": True,
            }
            for name, obj in made.items()
        }
        for name, owner in (("one", "two"), ("two", "one")):
            references = {"metadata": {"ownerReferences": [controllers[owner]]}}
            await world.kube.patch(JOBS, name, references, "default")
        asked = count_owners(world, monkeypatch)
        await world.pod("a", shape=world.shape(WHOLE), group="podgroup-u1")
        metadata = {
            "annotations": {GANG_ENABLED: "true"},
            "ownerReferences": [controllers["one"]],
        }
        await world.kube.patch(PODS, "a", {"metadata": metadata}, "default")
        await world.clock.sleep(10)
        assert 1 <= len(asked) <= 10

    in_virtual_time(scenario)


def test_a_group_that_runs_on_below_its_minimum_costs_few_requests(monkeypatch: Any) -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        name = await job(world, {"parallelism": 2}, "a", "b")
        keeps = {"metadata": {"annotations": {GANG_LOSS_POLICY: "keep"}}}
        await world.kube.patch(POD_GROUPS, name, keeps, "default")
        await world.clock.sleep(5)
        asked = count_owners(world, monkeypatch)
        await lose(world, "b")
        await world.clock.sleep(600)
        assert 1 <= len(asked) <= 40

    in_virtual_time(scenario)
