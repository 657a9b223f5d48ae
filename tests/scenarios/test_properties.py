"""What holds for all groups: all or nothing, nobody waits for ever, single pods are not kept."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counted import count_members
from tests.scenarios.objects import Scenario
from tests.scenarios.pure import PureCluster

from dray.kube.convert_groups import pod_group_from
from dray.kube.ports import CLAIMS
from dray_allocator.core.dump import double_allocations

GPUS = 4
_GANGS = st.lists(st.tuples(st.integers(2, 3), st.integers(1, 3)), min_size=2, max_size=3)
"""Pods, and GPUs of each."""


def cluster_of(nodes: int, **more: Any) -> PureCluster:
    named = {f"n{number}": GPUS for number in range(nodes)}
    return PureCluster(Scenario(name="", says="", source="", nodes=named, steps=(), **more))


def held(cluster: PureCluster) -> Mapping[str, int]:
    """GPUs of each node in use."""
    found: dict[str, int] = {}
    for (plural, _), obj in cluster.objects.items():
        if plural == CLAIMS.plural and (found_in := (obj.get("status") or {}).get("allocation")):
            for result in found_in["devices"]["results"]:
                found[result["pool"]] = found.get(result["pool"], 0) + 1
    return found


def fits(cluster: PureCluster, nodes: int, pods: int, gpus: int) -> bool:
    """Whether a gang of equal pods fits what is free."""
    used = held(cluster)
    return sum((GPUS - used.get(f"n{at}", 0)) // gpus for at in range(nodes)) >= pods


@given(
    nodes=st.integers(1, 3),
    gangs=_GANGS,
    order=st.randoms(use_true_random=False),
    replaced=st.sets(st.integers(0, 8), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_gangs_are_whole_and_none_waits_while_it_fits(
    nodes: int, gangs: Any, order: Any, replaced: set[int]
) -> None:
    """In every order of their pods, and whenever the allocator is replaced: a gang holds all or
    nothing, and of two that compete for the last devices one runs."""
    cluster = cluster_of(nodes)
    for number, (pods, _) in enumerate(gangs):
        cluster.do({"group": {"name": f"g{number}", "minMember": pods}})
    arrivals = [(number, pod) for number, (pods, _) in enumerate(gangs) for pod in range(pods)]
    order.shuffle(arrivals)
    for at, (number, pod) in enumerate(arrivals):
        if at in replaced:
            cluster.replace_allocator()
        step = {"name": f"g{number}-{pod}", "group": f"g{number}", "gpus": gangs[number][1]}
        cluster.do({"pods": step})
        for other, (pods, gpus) in enumerate(gangs):
            assert cluster.holds(f"g{other}-") in (0, pods * gpus)
    for number, (pods, gpus) in enumerate(gangs):
        assert cluster.holds(f"g{number}-") or not fits(cluster, nodes, pods, gpus)
    running = [number for number in range(len(gangs)) if cluster.holds(f"g{number}-")]
    assert running or not any(fits(cluster, nodes, pods, gpus) for pods, gpus in gangs)
    for number in running:
        cluster.do({"delete": [f"g{number}-{pod}" for pod in range(gangs[number][0])]})
    for number, (pods, gpus) in enumerate(gangs):
        if number not in running:
            assert cluster.holds(f"g{number}-") or not fits(cluster, nodes, pods, gpus)


@given(
    refused=st.sets(st.integers(0, 3), min_size=1),
    lost=st.sets(st.integers(0, 3)),
    shared=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_after_the_deadline_half_a_gang_holds_nothing(
    refused: set[int], lost: set[int], shared: bool
) -> None:
    """Whatever pods can't be bound or are lost, past the deadline a gang below its minimum holds
    nothing, and a gang that waits for its devices runs."""
    cluster = cluster_of(1, shared=shared)
    cluster.do({"group": {"name": "one", "minMember": 4}})
    cluster.do({"group": {"name": "two", "minMember": 4}})
    cluster.do({"refuse": [f"one-{pod}" for pod in refused]})
    cluster.do({"pods": {"name": "one", "count": 4, "group": "one"}})
    cluster.do({"pods": {"name": "two", "count": 4, "group": "two"}})
    assert cluster.holds("one-") == 4
    cluster.do({"delete": [f"one-{pod}" for pod in lost]})
    cluster.do({"after": 300})
    assert cluster.holds("one-") == 0
    assert len([name for name in cluster.running() if name.startswith("two-")]) == 4


_CPUS = 64
"""Of each node."""
_MIXED = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from([20, 30, 40])),
    min_size=2,
    max_size=3,
)
"""Workers with one GPU each, and CPU tasks with so many CPUs each."""


@given(
    nodes=st.integers(1, 2),
    gangs=_MIXED,
    order=st.randoms(use_true_random=False),
    replaced=st.sets(st.integers(0, 8), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_gangs_are_whole_with_their_cpu_tasks(
    nodes: int, gangs: Any, order: Any, replaced: set[int]
) -> None:
    """In every order of their pods, and whenever the allocator is replaced: a gang's workers and
    CPU tasks start together, no node has more of them than it has CPUs, and one gang runs."""
    cluster = cluster_of(nodes)
    pods: list[dict[str, Any]] = []
    for number, (workers, tasks, cpus) in enumerate(gangs):
        name = f"g{number}"
        cluster.do({"group": {"name": name, "minMember": workers + tasks}})
        pods += [{"name": f"{name}-w{at}", "group": name} for at in range(workers)]
        cpu_task = {"group": name, "gpus": 0, "in_pool": True, "requests": {"cpu": cpus}}
        cpu_task |= {"scheduler": "tensor-fusion-scheduler"}
        pods += [{"name": f"{name}-c{at}", **cpu_task} for at in range(tasks)]
    order.shuffle(pods)
    for at, pod in enumerate(pods):
        if at in replaced:
            cluster.replace_allocator()
        cluster.do({"pods": pod})
        running = cluster.running()
        for number, (workers, tasks, _) in enumerate(gangs):
            started = sum(name.startswith(f"g{number}-") for name in running)
            assert started in (0, workers + tasks)
        for there in cluster.nodes().values():
            assert sum(gangs[int(name[1])][2] for name in there if "-c" in name) <= _CPUS
    could_run = [tasks <= nodes * (_CPUS // cpus) for _, tasks, cpus in gangs]
    assert bool(cluster.running()) == any(could_run)


_PODS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=6)
"""Task and pair of each pod."""


@given(
    pods=_PODS,
    member=st.integers(1, 6),
    tasks=st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=2),
    pairs=st.integers(0, 3),
    free=st.integers(4, 8),
    resources=st.integers(0, 8),
)
@settings(max_examples=60, deadline=None)
def test_a_group_starts_once_all_of_its_minimums_are_met_together(
    pods: Any, member: int, tasks: dict[str, int], pairs: int, free: int, resources: int
) -> None:
    """It starts if all pods together meet all minimums, and then with pods that meet them; one that
    has no room or lacks minResources holds nothing."""
    cluster = PureCluster(Scenario(name="", says="", source="", nodes={"n0": 8}, steps=()))
    cluster.do({"pods": {"name": "other", "count": 8 - free}})
    policy = {"name": "p", "matchLabelKeys": ["pair"], "subGroupSize": 2, "minSubGroups": pairs}
    spec: dict[str, Any] = {"minMember": member, "minTaskMember": tasks}
    spec |= {"subGroupPolicy": [policy]} if pairs else {}
    spec |= {"minResources": {"nvidia.com/gpu": str(resources)}} if resources else {}
    cluster.do({"group": {"name": "g", **spec}})
    for number, (task, pair) in enumerate(pods):
        labels = {"pair": str(pair)}
        made = {"name": f"g-{number}", "group": "g", "task": task, "labels": labels}
        cluster.do({"pods": made})
    group = pod_group_from(cluster.objects["podgroups", "g"])
    member_of = {f"g-{at}": (task, {"pair": str(pair)}) for at, (task, pair) in enumerate(pods)}
    started = [name for name in cluster.running() if name in member_of]
    assert cluster.holds("g-") == len(started)
    can_start = count_members(group, member_of.values()).is_met
    if not group.is_gang:
        assert len(started) == min(len(pods), free)
    elif not can_start or resources > free:
        assert started == []
    elif len(pods) <= free:
        assert len(started) == len(pods), "the rest comes one by one"
    if group.is_gang and started:
        assert count_members(group, [member_of[name] for name in started]).is_met


_LIFE = st.lists(
    st.one_of(
        st.tuples(st.just("lose"), st.integers(0, 1), st.integers(0, 2)),
        st.tuples(st.just("replace"), st.integers(0, 1), st.integers(0, 2)),
        st.tuples(st.just("single"), st.sampled_from([0.5, 1]), st.sampled_from([0, 0, 10])),
        st.tuples(st.just("after"), st.sampled_from([1, 30, 61]), st.just(0)),
        st.tuples(st.just("restart"), st.booleans(), st.just(0)),
        st.tuples(st.just("end group"), st.integers(0, 1), st.just(0)),
    ),
    min_size=4,
    max_size=14,
)


class Losses:
    """Two gangs on six GPUs that lose pods and get successors, among single pods."""

    def __init__(self) -> None:
        named = {"n0": GPUS, "n1": GPUS - 2}
        options = {"checkpoint_interval_s": 1.0}
        self.cluster = PureCluster(
            Scenario(name="", says="", source="", nodes=named, steps=(), options=options)
        )
        self._made = 0
        for gang in (0, 1):
            spec = {"annotations": {"tensor-fusion.ai/gang-loss-policy": "keep"}}
            self.cluster.do({"group": {"name": f"g{gang}", "minMember": 3, **spec}})
            self.cluster.do({"pods": {"name": f"g{gang}", "count": 3, "group": f"g{gang}"}})

    def do(self, verb: str, what: Any, more: Any) -> None:
        """Do one step of a life."""
        cluster, self._made = self.cluster, self._made + 1
        match verb:
            case "lose":
                pods = [name for name in cluster.running() if name.startswith(f"g{what}")]
                cluster.do({"delete": pods[: more + 1]})
            case "replace":
                pod = {"name": f"g{what}-new{self._made}", "group": f"g{what}"}
                cluster.do({"pods": pod})
            case "single":
                pod = {"name": f"single{self._made}", "gpus": what, "priority": more}
                cluster.do({"pods": pod})
            case "after":
                cluster.do({"after": what})
            case "restart":
                holds = self.holds()
                cluster.replace_allocator(trimmed=what)
                assert self.holds() == holds, "what is held is in the log, also if that is trimmed"
            case _ if ("podgroups", f"g{what}") in cluster.objects:
                cluster.do({"change": {"name": f"g{what}", "deleted": True}})

    def holds(self) -> Any:
        """What is held, by UID of the group."""
        return dict(self.cluster.allocator.state.domains["pool"].current.group_holds)


@given(life=_LIFE)
@settings(max_examples=40, deadline=None)
def test_what_is_held_for_a_group_is_never_used_twice_and_ends(life: Any) -> None:
    """Whatever gangs lose, whenever the allocator is replaced, and however its log is trimmed."""
    one = Losses()
    for step in life:
        one.do(*step)
        state = one.cluster.allocator.state
        assert [*double_allocations(state), *one.cluster.allocator.oversold()] == []
    for _ in range(2):
        one.do("after", 61, 0)
    assert one.holds() == {}
    used = sum(held(one.cluster).values())
    in_use = one.cluster.allocator.state.device_usage.devices
    assert len(in_use) <= used, "nothing but claims uses a device"
    singles = [name for plural, name in one.cluster.objects if plural == "pods" and "si" in name]
    waiting = [name for name in singles if not one.cluster.holds(f"{name}-")]
    assert not waiting or len(in_use) == 2 * GPUS - 2
