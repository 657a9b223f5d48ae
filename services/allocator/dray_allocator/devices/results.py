"""The AllocationResult of a claim: devices, configuration and node selector."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import NAMESPACE_OID, uuid5

from dray.api.claims import AllocatedDevice, Allocation, Claim, DeviceTerms
from dray.api.devices import OpaqueConfig
from dray.api.nodes import (
    NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.api.pods import Node
from dray_allocator.devices.allocation_state import TakenDevice
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.requirements import Alternative
from dray_allocator.devices.versions import SchedulerVersion


def result_of(
    claim: Claim,
    alternatives: Sequence[Alternative],
    taken: Sequence[TakenDevice],
    node: Node,
    version: SchedulerVersion,
) -> Allocation:
    """The allocation of ``claim``. ``alternatives``: the chosen one of each request.

    Raises:
        AllocationError: a slice has a node selector of several terms.
    """
    selector = _node_selector(taken, node, version)
    only_node = "" if selector is None else selector.only_node
    return Allocation(
        devices=tuple(_device(claim, number, one, version) for number, one in enumerate(taken)),
        node=only_node,
        config=tuple(_config(claim, alternatives, version)),
        selector=None if only_node else selector,
    )


def _device(
    claim: Claim, number: int, taken: TakenDevice, version: SchedulerVersion
) -> AllocatedDevice:
    device, ask = taken.candidate.device, taken.alternative.ask
    binds = version.device_binding
    terms = DeviceTerms(
        tolerations=ask.tolerations if version.copies_tolerations else (),
        binding_conditions=(device.binding_conditions or ()) if binds else (),
        binding_failure_conditions=(device.binding_failure_conditions or ()) if binds else (),
    )
    return AllocatedDevice(
        request=taken.alternative.name,
        id=taken.candidate.id,
        share_id=_share_id(claim, number, taken) if taken.is_share else None,
        consumed={name: str(amount) for name, amount in taken.consumed.items()},
        admin_access=ask.admin_access,
        terms=terms if terms != DeviceTerms() else None,
    )


def _share_id(claim: Claim, number: int, taken: TakenDevice) -> str:
    """A UUID that no other share of the device has. Upstream's is random; this one is
    deterministic, which replay needs."""
    return str(uuid5(NAMESPACE_OID, f"{claim.uid or claim}/{number}/{taken.candidate.id}"))


def _config(
    claim: Claim, alternatives: Sequence[Alternative], version: SchedulerVersion
) -> Iterator[OpaqueConfig]:
    names = [alternative.name for alternative in alternatives]
    for config in (*_of_classes(alternatives), *_of_claim(claim, alternatives, version)):
        is_for_all = all(one.is_named_in(config.requests) for one in alternatives)
        if not version.config_per_request and names and is_for_all:
            yield OpaqueConfig(config.driver, config.parameters, (), config.source)
        else:
            yield config


def _of_classes(alternatives: Sequence[Alternative]) -> Iterator[OpaqueConfig]:
    """The configuration of each class once, for all requests with that class."""
    requests: dict[str, list[str]] = {}
    for alternative in alternatives:
        requests.setdefault(alternative.of_class.name, []).append(alternative.name)
    classes = {alternative.of_class.name: alternative.of_class for alternative in alternatives}
    for name, names in requests.items():
        for config in classes[name].config:
            yield OpaqueConfig(config.driver, config.parameters, tuple(names), "FromClass")


def _of_claim(
    claim: Claim, alternatives: Sequence[Alternative], version: SchedulerVersion
) -> Iterator[OpaqueConfig]:
    for config in claim.spec.config:
        times = sum(alternative.is_named_in(config.requests) for alternative in alternatives)
        if not config.requests:
            times = 1
        elif not version.config_per_request:
            times = min(times, 1)
        yield from [config] * times


def _node_selector(
    taken: Sequence[TakenDevice], node: Node, version: SchedulerVersion
) -> NodeSelector | None:
    """This node if a device is only for it; else the node selectors of the slices."""
    expressions: dict[object, NodeSelectorRequirement] = {}
    fields: dict[object, NodeSelectorRequirement] = {}
    for one in taken:
        reach = one.candidate.part.reach_of(one.candidate.device)
        if reach.node or (one.candidate.device.binds_to_node and not version.is_simple):
            return _only(node)
        terms = reach.selector.terms if reach.selector is not None else ()
        if len(terms) > 1:
            raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _merge(fields, term.fields)
            _merge(expressions, term.expressions)
    if not expressions and not fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions.values()), tuple(fields.values())),))


def _only(node: Node) -> NodeSelector:
    field = NodeSelectorRequirement(NAME_FIELD, "In", (node.name,))
    return NodeSelector((NodeSelectorTerm(fields=(field,)),))


def _merge(
    known: dict[object, NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]
) -> None:
    for one in more:
        known.setdefault((one.key, one.operator, frozenset(one.values)), one)


def chosen_of(
    plan: Sequence[Sequence[Alternative]], chosen: Mapping[int, int]
) -> list[Alternative]:
    """The chosen alternative of each request; the only one if there is no choice."""
    return [alternatives[chosen.get(index, 0)] for index, alternatives in enumerate(plan)]
