"""The node fit: each predicate to kube-scheduler's letter, and what decided pods hold of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api.devices import DeviceClass, Taint, Toleration
from dray.api.pods import HostPort, Node, NodeExpression, PodNeeds
from dray.messages.facts import DeviceClassObserved
from dray_allocator.devices.usage import NOTHING, AssumedPods, AssumedResources
from dray_allocator.nodes.predicates import UNSCHEDULABLE, failures, fits

ROOMY = Node("n", "u", cpu_milli=8_000, memory_bytes=2**30, pods=10)
NIC = "example.com/nic"

amounts = st.integers(0, 4)
resources = st.dictionaries(st.sampled_from([NIC, "ephemeral-storage"]), st.integers(1, 4))
ports = st.lists(
    st.builds(
        HostPort,
        st.sampled_from([53, 80]),
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2", "::"]),
    ),
    max_size=3,
    unique=True,
).map(tuple)
needs_of = st.builds(
    PodNeeds, cpu_milli=amounts, memory_bytes=amounts, resources=resources, ports=ports
)
helds = st.builds(AssumedResources, amounts, amounts, st.integers(0, 2), resources, ports)
nodes = st.builds(
    Node,
    st.just("n"),
    st.just("u"),
    cpu_milli=st.integers(0, 9),
    memory_bytes=st.integers(0, 9),
    pods=st.integers(0, 4),
    used_cpu_milli=amounts,
    used_memory_bytes=amounts,
    used_pods=st.integers(0, 2),
    resources=st.dictionaries(st.sampled_from([NIC, "ephemeral-storage"]), st.integers(0, 9)),
    used_resources=resources,
    used_ports=ports,
)


def reasons_of(
    needs: PodNeeds, node: Node = ROOMY, held: AssumedResources = NOTHING, **more: object
) -> list[str]:
    return list(failures(needs, node, held, **more))  # type: ignore[arg-type]


def plus(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


@given(needs_of, nodes, helds)
def test_what_is_held_keeps_away_whom_it_would_keep_away_once_counted(needs, node, held):
    counted = replace(
        node,
        used_cpu_milli=node.used_cpu_milli + held.cpu_milli,
        used_memory_bytes=node.used_memory_bytes + held.memory_bytes,
        used_pods=node.used_pods + held.pods,
        used_resources=plus(node.used_resources, held.resources),
        used_ports=(*node.used_ports, *held.ports),
    )
    assert reasons_of(needs, node, held) == reasons_of(needs, counted)


@given(needs_of, nodes, helds)
def test_a_pod_that_fits_leaves_no_resource_below_zero_and_no_port_taken_twice(needs, node, held):
    if not fits(needs, node, held):
        return
    assert node.used_pods + held.pods < node.pods
    used = plus(plus(node.used_resources, held.resources), needs.resources)
    assert all(used[name] <= node.resources.get(name, 0) for name in needs.resources)
    taken = {(p.number, p.protocol, p.address) for p in (*node.used_ports, *held.ports)}
    for port in needs.ports:
        everywhere = (port.number, port.protocol, "0.0.0.0")
        assert everywhere not in taken
        assert (port.number, port.protocol, port.address) not in taken
        if port.address == "0.0.0.0":
            assert not any((n, p) == (port.number, port.protocol) for n, p, _ in taken)


@given(needs_of, nodes, st.sampled_from(["cpu_milli", "memory_bytes", "pods"]))
def test_a_node_with_more_takes_whom_it_took(needs, node, field):
    more = replace(node, **{field: getattr(node, field) + 1})
    assert set(reasons_of(needs, more)) <= set(reasons_of(needs, node))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), st.none() | helds)))
def test_the_sum_held_on_a_node_is_that_of_the_pods_that_hold_something_there(changes):
    holds, current = AssumedPods(), {}
    for pod, node, held in changes:
        holds.set(pod, node, held)
        current[pod] = (node, held)
    for node in "mn":
        there = [held for where, held in current.values() if where == node and held is not None]
        found = holds.on(node)
        assert found.cpu_milli == sum(held.cpu_milli for held in there)
        assert found.pods == sum(held.pods for held in there)
        total: dict[str, int] = {}
        for held in there:
            total = plus(total, held.resources)
        assert found.resources == total
        assert sorted(found.ports) == sorted(port for held in there for port in held.ports)


@pytest.mark.parametrize(
    ("needs", "node", "reasons"),
    [
        (
            PodNeeds(resources={"ephemeral-storage": 11}),
            replace(ROOMY, resources={"ephemeral-storage": 10}),
            ["not enough free ephemeral-storage (11 asked)"],
        ),
        (
            PodNeeds(resources={"hugepages-2Mi": 2**21}),
            replace(ROOMY, resources={"hugepages-2Mi": 2**21}, used_resources={"hugepages-2Mi": 1}),
            ["not enough free hugepages-2Mi (2Mi asked)"],
        ),
        (PodNeeds(resources={NIC: 1}), ROOMY, [f"not enough free {NIC} (1 asked)"]),
        (
            PodNeeds(ports=(HostPort(80), HostPort(53, "UDP", "10.0.0.1"))),
            replace(ROOMY, used_ports=(HostPort(53, "UDP"), HostPort(80, "TCP", "10.0.0.1"))),
            ["host port 80/TCP is in use", "host port 53/UDP on 10.0.0.1 is in use"],
        ),
        (
            PodNeeds(ports=(HostPort(80, "TCP", "10.0.0.1"),)),
            replace(ROOMY, used_ports=(HostPort(80, "UDP"), HostPort(80, "TCP", "10.0.0.2"))),
            [],
        ),
    ],
)
def test_resources_and_ports_are_shown_in_their_units(needs, node, reasons):
    assert reasons_of(needs, node) == reasons


def test_a_cordon_is_reported_once_and_its_taint_alone_counts_as_any_taint():
    cordoned = replace(ROOMY, unschedulable=True, taints=(UNSCHEDULABLE,))
    assert reasons_of(PodNeeds(), cordoned) == ["unschedulable"]
    left_over = replace(ROOMY, taints=(UNSCHEDULABLE,))
    assert reasons_of(PodNeeds(), left_over) == [
        "node taint node.kubernetes.io/unschedulable=:NoSchedule is not tolerated"
    ]
    tolerant = PodNeeds(tolerations=(Toleration(UNSCHEDULABLE.key, "Exists"),))
    assert fits(tolerant, cordoned, NOTHING)


def test_preferences_exclude_no_pod():
    assert fits(PodNeeds(), replace(ROOMY, taints=(Taint("t", "", "PreferNoSchedule"),)), NOTHING)


@pytest.mark.parametrize(
    ("operator", "seen", "wanted", "holds"),
    [
        ("Gt", "16", "15", True),
        ("Gt", "16", "16", False),
        ("Lt", "007", "8", True),
        # As Go reads them: no underscores, and nothing that an int64 can't hold.
        ("Gt", "1_6", "1", False),
        ("Gt", str(2**63 - 1), "1", True),
        ("Gt", str(2**63), "1", False),
        ("Lt", "1", "many", False),
        ("Lt", "", "1", False),
    ],
)
def test_numbers_in_labels_are_read_as_kubernetes_reads_them(operator, seen, wanted, holds):
    labelled = replace(ROOMY, labels={"cores": seen})
    needs = PodNeeds(node_terms=((NodeExpression("cores", operator, (wanted,)),),))
    assert fits(needs, labelled, NOTHING) is holds


def test_what_a_class_gives_is_left_to_kube_scheduler_where_it_binds():
    needs, given_by_class = PodNeeds(resources={NIC: 1}), {NIC}
    assert reasons_of(needs, given=given_by_class) == []
    dedicated = replace(ROOMY, dedicated=True)
    assert reasons_of(needs, dedicated, alone=True, given=given_by_class) == [
        f"not enough free {NIC} (1 asked)"
    ]
    # Where a device plugin has it, too, the node's own count.
    full = replace(ROOMY, resources={NIC: 2}, used_resources={NIC: 2})
    assert reasons_of(needs, full, given=given_by_class) == [f"not enough free {NIC} (1 asked)"]


def test_a_class_that_stands_for_a_resource_lets_gated_pods_go_on(world):
    world.nodes(world.a_node("n1"))
    needs = PodNeeds(resources={NIC: 1})
    world.submit(world.a_pod("p", needs=needs, scheduler="default-scheduler"))
    assert not world.decisions()
    nics = DeviceClass("nics", extended_resource=NIC)
    world.see(DeviceClassObserved(revision=2, device_class=nics))
    world.tick()
    assert "p" in world.decisions()


@pytest.mark.parametrize(
    ("needs", "changes", "freed"),
    [
        (
            PodNeeds(resources={NIC: 2}),
            {"used_resources": {NIC: 2}},
            {"used_resources": {NIC: 1}},
        ),
        (
            PodNeeds(ports=(HostPort(80),)),
            {"used_ports": (HostPort(80, "TCP", "10.0.0.1"),)},
            {"used_ports": ()},
        ),
    ],
)
def test_what_a_decided_pod_takes_counts_until_the_nodes_fact_contains_it(
    world, needs, changes, freed
):
    plain = world.a_node("n1", resources={NIC: 3})
    world.nodes(plain, cards=2)
    world.submit(world.a_pod("a", needs=needs))
    world.submit(world.a_pod("b", needs=needs))
    decided = world.decisions()
    assert list(decided) == ["a"]
    assert (decided["a"].resources, decided["a"].ports) == (needs.resources, needs.ports)
    world.commit(decided["a"])
    world.tick()
    world.node(replace(plain, used_pods=1, **changes), counted=("a",))
    assert list(world.decisions()) == ["a"]
    world.node(replace(plain, used_pods=1, **freed), counted=("a",))
    assert "b" in world.decisions()
