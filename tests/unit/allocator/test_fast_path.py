"""What the node table decides fast is what the whole of structured parameters decides.

The full search reads slices and claims by itself (pools, CEL on every device, requests, taints,
counted use), tries every node that takes the pod, and knows nothing of the node table but the
scores. Node, devices, amounts and link level must agree, and so must it that nothing fits.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Claim, ClaimSpec, Constraint, DeviceRequest, DeviceToleration
from dray.api.devices import Capacity, OpaqueConfig, RequestPolicy, Taint
from dray.api.placement import HARD
from dray.api.pods import Pod, PodNeeds
from dray.messages.facts import SliceObserved
from dray_allocator.devices.allocation_state import AllocationState, untolerated
from dray_allocator.devices.budget import MAX_TRIES_PER_NODE, SearchBudget
from dray_allocator.devices.candidates import candidates_of
from dray_allocator.devices.capacity import demand_by
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.links import BEYOND_NVLINK, has_link_attributes
from dray_allocator.devices.ordered_search import OrderedSearch, SearchPlan, worst_first
from dray_allocator.devices.pools import gather
from dray_allocator.devices.requirements import Planner
from dray_allocator.devices.selectors import DeviceSelectors
from dray_allocator.devices.usage import load_of
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.nodes.predicates import fits
from dray_allocator.nodes.tie_break import tie
from dray_allocator.placement.choice import CONNECTED_NODES
from dray_allocator.placement.class_search import ClassSearch
from dray_allocator.placement.fast_path import table_nodes as choosing
from dray_allocator.placement.fast_path.table_choice import choose, index_of
from dray_allocator.placement.node_equivalence_cache import node_of
from dray_allocator.placement.pod_claims import pod_claims
from dray_allocator.placement.pod_request import PodRequest, wanted
from dray_allocator.scoring.preference import card_key
from dray_allocator.scoring.topology import concerns

DRIVER = f'device.attributes["{names.DRIVER}"]'
MODELS = (("T4", "65", "16Gi"), ("A100", "312", "40Gi"), ("H100", "989", "80Gi"))
MODES: tuple[dict[str, Any], ...] = (
    {"mode": "CompactFirst"},
    {"mode": "LowLoadFirst"},
    {"mode": "NodeCompactGPULowLoad"},
    {"mode": "CompactFirst", "placement_weights": {"cpu": 2, "vram": 5}},
    {"mode": "FragmentationAware"},
)
SELECTORS = (
    (),
    (),
    (f'{DRIVER}.model == "A100"',),
    (f"{DRIVER}.slot > 0",),
    (f'has({DRIVER}.odd) && {DRIVER}.odd == "yes"',),
    ("no selector",),
)
CAPACITIES = (
    {},
    {"virtual_tflops": "60", "virtual_vram": "10Gi"},
    {"virtual_tflops": "1", "virtual_vram": "1Gi"},
    {"virtual_vram": "15000M"},
)
TOLERATIONS = (
    (),
    (),
    (DeviceToleration("faulty", "Exists"),),
    (DeviceToleration("faulty", "Equal", "b"),),
    (DeviceToleration("", "Exists", "", "NoSchedule"),),
    (DeviceToleration("", "Equal", "b"),),
)
CONSTRAINTS = (
    (),
    (),
    (Constraint(match_attribute=names.qualified("model")),),
    (Constraint(("r0",), match_attribute=names.qualified("slot")),),
    (Constraint(distinct_attribute=names.qualified("slot")),),
)
PARAMETERS = (
    {},
    {},
    {"computePercentRequest": "25", "vramPercentRequest": "30"},
    {"prefer": "tflops desc"},
    {"prefer": "A100,T4 | vram asc"},
    {"gpuTopology": "hard"},
    {"gpuTopology": "none"},
    {"prefer": "vram asc", "gpuTopology": "soft"},
)
STEPS = RequestPolicy(default="1Gi", minimum="512Mi", step="256Mi")


@dataclass(frozen=True)
class Answer:
    """Where a pod goes and what it gets."""

    node: str
    devices: list[tuple[int, str, str, dict[str, int]]]
    """Claim, request, device and billionths of every capacity."""
    level: int


class FullSearch:
    """One pod, by all of structured parameters and nothing else."""

    def __init__(self, state: Any, want: PodRequest) -> None:
        self.state, self.want = state, want
        self.pod = pod_claims(state, want)
        self.index = index_of(state, state.domains["pool"], want)

    def answer(self) -> Answer | None:
        """The best of all nodes."""
        found = sorted(self._nodes(), key=lambda one: one[0])
        if self.want.pattern.prefers:
            return min(found, key=lambda one: (one[1], one[2].level, *one[0]), default=(None,) * 3)[
                2
            ]
        if not concerns(self.want.pattern.asks, self.want.pattern.placement.topology):
            return found[0][2] if found else None
        best = None
        for _, _, one in found[: CONNECTED_NODES if self.index.table.linked else 1]:
            if best is None or one.level < best.level:
                best = one
            if best.level < BEYOND_NVLINK:
                break
        return best

    def _nodes(self):
        """Key, worth and answer of every node on which everything fits."""
        state, table = self.state, self.index.table
        for name in state.facts.served_nodes("pool"):
            node, row = state.facts.nodes[name].node, table.rows[name]
            if not fits(
                self.want.pod.needs,
                node,
                state.assumed_pods.on(name),
                alone=self.want.pattern.alone,
            ):
                continue
            found = self._on(name, row)
            if found is not None:
                worth, answer = found
                needs = self.index.plan.cards
                fitting = [need.fitting(table, table.card_slice(row)) for need in needs]
                score = self.index.score.of(table, row, fitting)
                yield (score, tie(node.uid), node.uid), worth, answer

    def _on(self, name: str, row: int):
        state, pod, rules = self.state, self.pod, self.pod.version
        node = node_of(state, name)
        visible = visible_devices(state.published, state.device_usage, name)
        pools = gather(visible.slices, node, rules)
        candidates = list(candidates_of(one for one in pools if not one.invalid))
        usage, demand_of = visible.usage(rules), demand_by(rules, pod.requested_capacity())
        before = AllocationState(pod.claims, usage, rules, demand_of)
        selectors = DeviceSelectors(node, rules)

        def suits(claim, ask, of_class, candidate):
            try:
                return selectors.match(claim, ask, of_class, candidate)
            except AllocationError:
                return False

        classes = state.facts.classes
        planner = Planner(classes, pools, candidates, rules, suits, before.has_room)
        plan = SearchPlan(pod.claims, tuple(tuple(planner.plan(claim)) for claim in pod.claims))
        numbers = {
            id(one): number
            for number, requests in enumerate(plan.requests)
            for request in requests
            for one in request.alternatives
        }
        fitting = {
            id(one): [
                candidate
                for candidate in candidates
                if suits(pod.claims[numbers[id(one)]], one.ask, one.of_class, candidate)
                and not untolerated(candidate.device.taints, one.ask.tolerations)
                and before.is_free(numbers[id(one)], one.ask, candidate)
                and before.has_room(one.ask, candidate)
            ]
            for one in plan.alternatives
        }
        rank = self.index.score.rank(self.index.table, row)
        asks = dict(zip(map(id, plan.alternatives), self.want.pattern.asks, strict=True))

        def rate(alternative, candidate):
            ask, card = asks[id(alternative)], state.published.cards.get(candidate.id)
            return card_key(ask.preference, candidate.device), rank(card), tie(card.name)

        budget = SearchBudget(100 * MAX_TRIES_PER_NODE)
        search = OrderedSearch(plan, rules, budget, usage, demand_of, rate)
        topology = self.want.pattern.placement.topology
        connects = concerns(self.want.pattern.asks, topology)
        if topology != HARD and not has_link_attributes(state.published.of(name).cards):
            connects = False
        found = search.best(search.in_order(fitting), connects=connects, must=topology == HARD)
        assert not budget.ran_out
        if found is None:
            return None
        worth = worst_first(rate(one.alternative, one.candidate)[0] for one in found.taken)
        devices = [
            (
                numbers[id(one.alternative)],
                one.alternative.request,
                str(one.candidate.id),
                {key: amount.quantity.nano for key, amount in one.consumed.items()},
            )
            for one in found.taken
        ]
        return worth, Answer(name, devices, found.level)


def _in_full(want: PodRequest) -> PodRequest:
    """The same, for the search of all devices."""
    return replace(want, pattern=replace(want.pattern, in_full=True))


def chosen(state: Any, want: PodRequest) -> Answer | None:
    """The fast path's answer."""
    choice = choose(state, state.domains["pool"], want)
    if choice is None:
        return None
    devices = [
        (one.ask.claim, one.ask.request.name, one.card.name, dict(one.consumed.nano))
        for one in choice.shares
    ]
    return Answer(choice.node, devices, choice.link_level)


def a_spec(random: Random) -> ClaimSpec:
    """One request or one per container, mostly of few cards."""
    requests = tuple(
        DeviceRequest(
            f"r{number}",
            names.DEVICE_CLASS,
            random.choice(SELECTORS),
            count=random.choice((1, 1, 2, 3)),
            capacity=random.choice(CAPACITIES),
            tolerations=random.choice(TOLERATIONS),
        )
        for number in range(random.choice((1, 1, 2)))
    )
    head = {"apiVersion": names.API_VERSION, "kind": names.LIMITS_KIND}
    config = tuple(
        OpaqueConfig(names.DRIVER, {**head, **random.choice(PARAMETERS)}, about)
        for about in random.choice(((), ((),), (("r0",),), (("r0",), ("r1",))))
    )
    return ClaimSpec(requests, random.choice(CONSTRAINTS), config)


def a_slice(world: Any, random: Random, name: str) -> Any:
    """The cards of a node, which may be connected."""
    cards = []
    is_linked = random.random() < 0.6
    for at in range(random.randrange(5)):
        model, tflops, vram = random.choice(MODELS)
        card = world.a_card(f"{name}-{at}", model=model, tflops=tflops, vram=vram)
        attributes = {**card.attributes, "slot": random.randrange(3)}
        if random.random() < 0.2:
            attributes["odd"] = random.choice(("yes", "no"))
        for link in (names.NVLINK_DOMAIN, names.NUMA_NODE, names.PCIE_ROOT):
            if is_linked and random.random() < 0.5:
                attributes[link] = random.choice(("x", "y"))
        capacity = dict(card.capacity)
        if random.random() < 0.2:
            capacity["virtual_vram"] = Capacity(vram, STEPS)
        taints = (
            (Taint("faulty", random.choice("ab"), "NoSchedule"),) if random.random() < 0.2 else ()
        )
        made = replace(
            card,
            attributes=attributes,
            capacity=capacity,
            taints=(*card.taints, *taints),
            allow_multiple_allocations=random.random() > 0.15,
        )
        cards.append(made)
    return world.a_slice(name, cards, generation=world.next())


def two_claims(world: Any, pod: Pod, random: Random) -> Pod:
    """Now and then a pod has another claim."""
    if random.random() < 0.7:
        return pod
    made = Claim(f"more-{pod.uid}", "ns", f"{pod.uid}-more", 1, "pool", a_spec(random), pod.uid)
    world.claim(replace(made, pod_name=pod.name))
    reference = replace(pod.claims[0], reference="more", claim=made.name)
    return replace(pod, claims=(*pod.claims, reference))


@pytest.fixture(autouse=True, scope="module")
def _patient():
    """No node is put off: which one is, is not the full search's matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "MAX_FIRST_TRIES_BY_TABLE", MAX_TRIES_PER_NODE)
        yield


@pytest.mark.parametrize("says", MODES, ids=lambda says: "-".join(map(str, says.values())))
@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_the_fast_path_decides_what_the_full_search_decides(
    make_world: Any, says: dict[str, Any], seed: int
) -> None:
    random = Random(seed)
    topology = random.choice(("", "soft", "hard", "none"))
    world = make_world().open(**says, placement_topology=topology)
    for number in range(random.randint(1, 6)):
        name = f"n{number}"
        part = a_slice(world, random, name)
        world.see(SliceObserved(revision=world.next(), slice=part))
        world.node(world.a_node(name, cpu_milli=random.choice((1_000, 64_000))))
    state, domain = world.state, world.state.domains["pool"]
    for number in range(8):
        domain.serving_since = None  # Nobody decides meanwhile.
        pod = world.a_pod(f"p{number}", needs=PodNeeds(cpu_milli=random.choice((0, 600))))
        pod = two_claims(world, pod, random)
        world.submit(pod, a_spec(random))
        want = wanted(state, "pool", pod)
        if isinstance(want, PodRequest):
            expected = FullSearch(state, want).answer()
            assert chosen(state, want) == expected
            if want.pattern.placement.topology != HARD:
                in_full = ClassSearch(state, domain, _in_full(want)).choice()
                assert (in_full is None) == (expected is None)
        world.serve()
    assert not world.oversold()


@pytest.mark.parametrize("mode", ["CompactFirst", "LowLoadFirst", "KubernetesCompatible"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_both_place_pods_without_devices_by_the_load_of_the_nodes(
    make_world: Any, mode: str, seed: int
) -> None:
    """Nodes without cards come first, then those with the highest load."""
    random = Random(seed)
    world = make_world().open(mode)
    nodes = [f"n{number}" for number in range(random.randint(1, 6))]
    for name in nodes:
        world.nodes(world.a_node(name), cards=random.choice((0, 1, 2, 2)))
    for number in range(random.randint(0, 6)):
        world.submit(world.a_pod(f"p{number}"), world.ask(random.choice(("100", "312")), "1Gi"))
    state, domain = world.state, world.state.domains["pool"]
    domain.serving_since = None  # Nobody decides meanwhile.
    pod = world.a_pod("task", needs=PodNeeds(cpu_milli=1))
    world.submit(pod, ClaimSpec(()))
    want = wanted(state, "pool", pod)

    def key(name: str) -> tuple[bool, int, int]:
        cards = state.published.of(name).cards
        loads = [load_of(one.shape.totals, state.device_usage.of(one.id)) for one in cards]
        return bool(cards), -(sum(loads) // max(len(cards), 1)), tie(f"uid-{name}")

    expected = min(nodes, key=key)
    assert choose(state, domain, want).node == expected
    assert ClassSearch(state, domain, _in_full(want)).choice().node == expected
