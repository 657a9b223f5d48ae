"""Why a pod fits on no node, from the search over equivalence classes of nodes."""

from collections.abc import Hashable, Iterator

from dray.api.claims import DeviceRequest
from dray.reasons import Reason
from dray_allocator.devices.budget import MAX_FIRST_TRIES_BY_SEARCH, MAX_TRIES_PER_NODE
from dray_allocator.devices.percentages import Share
from dray_allocator.devices.visible_devices import visible_devices
from dray_allocator.devices.visible_pools import VisiblePools, is_unusable, pools_of
from dray_allocator.explain.affected_requests import each_once, named
from dray_allocator.explain.device_reasons import DeviceReasons
from dray_allocator.explain.representative_devices import RepresentativeDevices
from dray_allocator.explain.table_reasons import TOO_MANY, constrained, together
from dray_allocator.nodes.index import NodeIndex
from dray_allocator.placement.choice import SLOW_NODES
from dray_allocator.placement.class_search import ClassSearch
from dray_allocator.placement.node_equivalence_cache import NodeEquivalence, node_of
from dray_allocator.placement.pod_claims import PodClaims
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.validate_claim import fewest_devices
from dray_allocator.scoring.topology import must_be_connected
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


class ClassReasons:
    """The reasons of one pod, from the results of the classes of nodes."""

    def __init__(self, state: AllocatorState, domain: SchedulingDomain, wanted: PodRequest) -> None:
        self._state = state
        self._domain = domain
        self._wanted = wanted
        self._search = ClassSearch(state, domain, wanted)
        self._must_be_connected = must_be_connected(wanted.pattern.asks, wanted.pattern.placement)
        if not self._must_be_connected:  # Otherwise the node table decides.
            self._search.choice()
        self._nodes = len(state.facts.served_nodes(domain.name))
        self._classes: dict[int, tuple[NodeEquivalence, VisiblePools]] = {}
        """By identity."""
        self._counts: dict[int, int] = {}
        """The number of nodes of each class."""
        self._first: dict[int, str] = {}
        """The first node of each class, in the order of tie breaks: reasons name its devices."""
        self._infeasible = self._errors = self._slow = self._not_searched = 0
        self._error_at = ""
        if not self.ended_at:
            self._count_classes()
        self._devices = self._count_devices()

    @property
    def index(self) -> NodeIndex:
        """The index that the search used."""
        return self._search.index

    @property
    def devices(self) -> int:
        """The number of devices on the nodes."""
        return self._devices.found

    @property
    def ended_at(self) -> str:
        """The node whose error ended the attempt for all nodes, as in kube-scheduler; else
        empty."""
        return self._search.ended_at

    def of_error(self) -> list[Reason]:
        """The error on that node."""
        return list(self._of_error(self.ended_at, self._nodes))

    def of_devices(self) -> list[Reason]:
        """What fails on pools and devices, by request."""
        found = [*self._of_pools(), *self._unparsable()]
        alike: dict[Hashable, list[tuple[str, DeviceRequest, Share]]] = {}
        for one in _named(self._search.pod):
            alike.setdefault(_same(*one[1:]), []).append(one)
        found += each_once(
            [
                ([name for name, _, _ in some], self._devices.reasons(*some[0][1:]))
                for some in alike.values()
            ]
        )
        return found

    def of_nodes(self) -> list[Reason]:
        """How many nodes pass the filters, but have no devices for the pod."""
        found = [*self._of_error(self._error_at, self._errors)] if self._error_at else []
        meeting = constrained(self._wanted.claims)
        what = f"not enough devices for all its requests together{meeting}"
        fewest = max(map(fewest_devices, self._wanted.claims), default=0)
        most = self._most_on_a_node
        too_many = f"no node has more than {most}" if fewest > most > 0 else ""
        for failed, text, detail in (
            (self._infeasible, what, too_many),
            (
                self._slow,
                f"no choice of devices among the first {MAX_TRIES_PER_NODE} tried",
                TOO_MANY,
            ),
            (
                self._not_searched,
                f"no choice of devices among the first {MAX_FIRST_TRIES_BY_SEARCH} tried",
                TOO_MANY,
            ),
        ):
            if failed:
                found.append(Reason("count", text, failed, self._nodes, "node", detail))
        if self._must_be_connected:
            found += together(self._state, self._domain, self._wanted)
        return found

    @property
    def _most_on_a_node(self) -> int:
        """The largest number of devices that one node sees."""
        return max((pools.devices for _, pools in self._classes.values()), default=0)

    def _count_classes(self) -> None:
        accepting, slow = self._search.classes.accepting, self._search.slow_nodes
        searched_long = dict.fromkeys(slow[:SLOW_NODES])
        for node, equivalence, pools in self._search.nodes_by_class():
            key = id(equivalence)
            self._classes[key] = equivalence, pools
            self._counts[key] = self._counts.get(key, 0) + 1
            self._first.setdefault(key, node)
            if node in accepting:
                self._count(node, equivalence, is_searched_long=node in searched_long)

    def _count(self, node: str, equivalence: NodeEquivalence, *, is_searched_long: bool) -> None:
        result = equivalence.result
        if result is None:
            return
        if result.is_error:
            self._errors += 1
            self._error_at = self._error_at or node
        elif not result.is_slow:
            self._infeasible += not result.is_feasible
        elif not is_searched_long:
            self._not_searched += 1
        elif equivalence.long_result is not None and equivalence.long_result.is_slow:
            self._slow += 1
        else:
            self._infeasible += 1

    def _count_devices(self) -> DeviceReasons:
        state, pod = self._state, self._search.pod
        representatives = RepresentativeDevices(state, pod.version, self._search.classes.devices)
        devices = DeviceReasons(state, pod, representatives)
        for key, (_, pools) in self._classes.items():
            devices.add(pools, self._first[key], self._counts[key])
        return devices

    def _of_pools(self) -> Iterator[Reason]:
        """Incomplete and invalid pools."""
        count = failed = 0
        unusable_at: list[str] = []
        shared: dict[str, bool] = {}
        for key, (_, pools) in self._classes.items():
            count += pools.own_pools * self._counts[key]
            failed += pools.unusable_pools * self._counts[key]
            shared.update(pools.shared_pools)
            if pools.unusable_pools or any(pools.shared_pools.values()):
                unusable_at.append(self._first[key])
        if unusable_at:
            what, worst = "incomplete or invalid", self._fault_on(unusable_at[0])
            failed, count = failed + sum(shared.values()), count + len(shared)
            yield Reason("count", what, failed, count, "pool", worst)

    def _fault_on(self, node: str) -> str:
        """The first incomplete or invalid pool of the node, and why."""
        state = self._state
        visible = visible_devices(state.published, state.device_usage, node)
        pools = pools_of(node_of(state, node), visible, self._search.pod.version)
        pool = min(filter(is_unusable, pools), key=str)
        return f"{pool}: {pool.invalid or 'not all slices of its newest generation are there'}"

    def _unparsable(self) -> Iterator[Reason]:
        """Devices that can't be parsed."""
        faults = [
            (fault, self._counts[key])
            for key, (equivalence, _) in self._classes.items()
            for _, fault in equivalence.visible.unparsable
        ]
        if faults:
            failed = sum(count for _, count in faults)
            total, detail = self.devices + failed, min(faults)[0]
            yield Reason("unsupported", "unparsable", failed, total, detail=detail)

    def _of_error(self, node: str, failed: int) -> Iterator[Reason]:
        """The error of the search on a node, without the name of the claim, so that pods with equal
        claims have equal reasons."""
        trial = self._search.trial(node, MAX_FIRST_TRIES_BY_SEARCH)
        error = f"on {node}: {trial.error}"
        for claim in self._search.pod.claims:
            error = error.replace(f"claim {claim}", "the claim")
        if trial.feasibility.ends_attempt:
            error = f"{error}; as in kube-scheduler, that ends the attempt for all nodes"
        yield Reason("count", "the search for devices failed", failed, self._nodes, "node", error)


def _named(pod: PodClaims) -> Iterator[tuple[str, DeviceRequest, Share]]:
    """Every request and alternative with its name, as in results: ``main`` or ``main/sub``."""
    found = (
        named(request.name if ask is request else f"{request.name}/{ask.name}", number, pod.claims)
        for number, claim in enumerate(pod.claims)
        for request, ask in claim.spec.alternatives()
    )
    return ((name, *one) for name, one in zip(found, pod.asks(), strict=True))


def _same(ask: DeviceRequest, share: Share) -> Hashable:
    """Equal for requests with equal results on every device."""
    amounts = str(ask.capacity)
    return ask.device_class, ask.selectors, amounts, ask.tolerations, ask.admin_access, share
