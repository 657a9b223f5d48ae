"""A simulated cluster, whose pods, claims and nodes are created, changed and deleted."""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Claim, ClaimSpec, DeviceRequest, last_attempt_before
from dray.api.devices import Capacity, Device, DeviceClass, RequestPolicy, ResourceSlice, Taint
from dray.api.groups import VOLCANO, PodGroup
from dray.api.pods import (
    GroupKey,
    GroupMember,
    Node,
    Pod,
    PodClaim,
    PodNeeds,
    Policy,
    Pool,
)
from dray.messages.decisions import NodeLeft
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    GroupObserved,
    InventoryObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from tools.recordings.bus import SimulatedBus

POOLS = ("inference", "training")
NODES = ("node-0", "node-1", "node-2")
MODELS = ("A100", "H100", "A100")
MODES = ("CompactFirst", "LowLoadFirst")
OWNER = Taint(names.OWNER_TAINT, names.OWNER_DRAY, "NoSchedule")


def device(node: str, index: int, model: str) -> Device:
    """A GPU that the node-agent publishes."""
    fixed = RequestPolicy(default="0", valid_values=("0",))
    vram = "40Gi" if model == "A100" else "80Gi"
    return Device(
        f"gpu-{node}-{index}",
        attributes={"uuid": f"gpu-{node}-{index}", "model": model},
        capacity={
            "tflops": Capacity("312", fixed),
            "vram": Capacity(vram, fixed),
            "virtual_tflops": Capacity("312", RequestPolicy(default="312", minimum="1")),
            "virtual_vram": Capacity(vram, RequestPolicy(default=vram, minimum="1")),
        },
        allow_multiple_allocations=True,
        taints=(OWNER,),
    )


class RecordedCluster:
    """Kubernetes' objects; every change is published as a fact."""

    def __init__(self, bus: SimulatedBus, random: Random) -> None:
        self.bus = bus
        self.random = random
        self.claims: dict[str, Claim] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        """The newest PodGroup of each pool."""
        self.counts: dict[str, int] = {}
        """Numbers of events."""
        self._revision = 0
        self._count = 0
        self._membership = dict(zip(NODES, (POOLS[0], POOLS[0], POOLS[1]), strict=True))
        self._pools_of: dict[str, dict[str, None]] = {node: {} for node in NODES}
        """Pools that each node is or was in."""
        self._leaving: dict[str, tuple[str, str, int]] = {}
        self._counted: dict[str, list[Pod]] = {node: [] for node in NODES}
        self._policy_version = 0

    def next(self) -> int:
        """The next revision."""
        self._revision += 1
        return self._revision

    def count_event(self, what: str) -> None:
        """Count an event."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def configure(self) -> None:
        """Create classes, pools, nodes and logs."""
        made = DeviceClass(names.DEVICE_CLASS)
        self.bus.publish(DeviceClassObserved(revision=self.next(), device_class=made))
        self.change_policy()
        for name in POOLS:
            pool = Pool(name, f"uid-{name}", template="policy")
            self.bus.publish(PoolObserved(revision=self.next(), pool=pool))
            self.bus.open(name, 1)
        for node, model in zip(NODES, MODELS, strict=True):
            cards = tuple(device(node, index, model) for index in range(2))
            made_of = ResourceSlice(
                f"slice-{node}", f"uid-{node}", names.DRIVER, node, 1, 1, node, cards
            )
            self.bus.publish(SliceObserved(revision=self.next(), slice=made_of))
            self.publish_node(node)
        self.bus.publish(Synced(revision=1, instance="claim-controller"))
        self.tick()

    def publish_node(self, node: str) -> None:
        """Publish a node."""
        leaving, _, since = self._leaving.get(node, ("", "", 0))
        counted = self._counted[node]
        made = Node(
            node,
            f"uid-{node}",
            self._membership[node],
            cpu_milli=8_000,
            memory_bytes=2**36,
            pods=40,
            used_cpu_milli=sum(pod.needs.cpu_milli for pod in counted),
            used_memory_bytes=sum(pod.needs.memory_bytes for pod in counted),
            used_pods=len(counted),
            leaving=leaving,
            leaving_since=since,
        )
        self._pools_of[node] |= {self._membership[node]: None, leaving: None}
        former = (pool for pool in self._pools_of[node] if pool not in ("", self._membership[node]))
        fact = NodeObserved(
            revision=self.next(),
            node=made,
            counted_pods=tuple(pod.uid for pod in counted),
            # Claims of these pools may hold devices of the node.
            former=tuple(sorted(former)),
        )
        self.bus.publish(fact)

    def publish_claim(self, claim: Claim, deleted: bool = False) -> None:
        """Publish a changed claim."""
        if deleted:
            del self.claims[claim.uid]
        else:
            self.claims[claim.uid] = claim
        self.bus.publish(ClaimObserved(revision=self.next(), claim=claim, deleted=deleted))

    def submit(self) -> None:
        """Create a pod and its claim, whose facts come in any order."""
        self._submit(self.random.choice(POOLS))

    def submit_group(self) -> None:
        """Create a PodGroup and its pods, or another pod of the last one."""
        pool, again = self.random.choice(POOLS), self.random.random() < 0.4
        if not (again and self.groups):
            name = f"group-{self._revision}"
            key = GroupKey(VOLCANO, "default", name)
            group = PodGroup(key, f"uid-{name}", self.random.choice([2, 3]), timeout_s=60.0)
            self.groups[pool] = group
            self.bus.publish(GroupObserved(revision=self.next(), group=group))
            for _ in range(group.minimum):
                self._submit(pool, GroupMember(key))
        elif pool in self.groups:
            self._submit(pool, GroupMember(self.groups[pool].key))

    def delete_group(self) -> None:
        """Delete a PodGroup; its pods stay."""
        if self.groups:
            _, group = self.groups.popitem()
            self.bus.publish(GroupObserved(revision=self.next(), group=group, deleted=True))

    def _submit(self, pool: str, member: GroupMember | None = None) -> None:
        self._count += 1
        random, uid = self.random, f"pod-{self._count}"
        request = DeviceRequest(
            names.GPU_REQUEST,
            names.DEVICE_CLASS,
            selectors=random.choice(
                [(), (), (f'device.attributes["{names.DRIVER}"].model == "H100"',)]
            ),
            count=random.choice([1, 1, 1, 2]),
            capacity={
                "virtual_tflops": random.choice(["50", "100", "156"]),
                "virtual_vram": random.choice(["8Gi", "16Gi", "40Gi"]),
            },
        )
        claim = Claim(
            f"claim-{self._count}",
            "default",
            f"{uid}-gpu",
            1,
            pool,
            ClaimSpec((request,)),
            uid,
            uid,
        )
        pod = Pod(
            uid,
            "default",
            uid,
            1,
            pool,
            random.choice([names.DRAY_SCHEDULER, "default-scheduler"]),
            priority=random.randrange(3),
            needs=PodNeeds(cpu_milli=random.choice([500, 1000, 3000]), memory_bytes=2**30),
            claims=(PodClaim(names.CLAIM_REFERENCE, claim.name, "template"),),
            request_id=f"request-{self._count}",
            created_unix_s=self.bus.now_unix_s,
            member=member,
        )
        self.pods[uid] = pod
        steps: list[Callable[[], None]] = [
            lambda: self.publish_claim(claim),
            lambda: self.bus.publish(PodObserved(revision=self.next(), pod=pod)),
        ]
        random.shuffle(steps)
        for step in steps:
            step()

    def delete_pod(self) -> None:
        """Delete a pod; its claim is deleted later."""
        if self.pods:
            pod = self.pods.pop(self.random.choice(list(self.pods)))
            self.bus.publish(PodObserved(revision=self.next(), pod=pod, deleted=True))
            self.uncount(pod)
            self.count_event("deleted")

    def uncount(self, pod: Pod) -> None:
        """Remove a pod from its node's sum."""
        for node, counted in self._counted.items():
            if any(one.uid == pod.uid for one in counted):
                self._counted[node] = [one for one in counted if one.uid != pod.uid]
                self.publish_node(node)

    def delete_claim(self) -> None:
        """Delete the claim of a deleted pod, rarely another one."""
        orphans = [claim for claim in self.claims.values() if claim.pod_uid not in self.pods]
        if self.random.random() < 0.1:
            orphans = orphans or list(self.claims.values())
        if orphans:
            self.publish_claim(self.random.choice(orphans), deleted=True)

    def clear(self) -> None:
        """Deallocate a claim, as kube-scheduler or as a rollback, which also voids it."""
        if allocated := [claim for claim in self.claims.values() if claim.allocation]:
            claim = self.random.choice(allocated)
            moved = self._membership[claim.allocation.node] != claim.pool  # type: ignore[union-attr]
            void = claim.decision if moved or self.random.random() < 0.5 else claim.void
            self.publish_claim(replace(claim, allocation=None, void=void))
            self.count_event("cleared")

    def tick(self) -> None:
        """Advance the time and publish a tick."""
        self.bus.now_unix_s += self.random.choice([1.0, 1.0, 1.0, 7.0, 31.0])
        self.bus.publish(Tick(revision=self.next(), now_unix_s=self.bus.now_unix_s))

    def change_policy(self) -> None:
        """Change the placement mode."""
        self._policy_version += 1
        mode = MODES[self._policy_version % 2]
        policy = Policy("policy", "uid", placement=mode, version=self._policy_version)
        self.bus.publish(PolicyObserved(revision=self.next(), policy=policy))

    def change_gpu_health(self) -> None:
        """Report a GPU as unhealthy, or as healthy."""
        node = self.random.choice(NODES)
        unhealthy = self.random.choice([(), (), (f"gpu-{node}-0",)])
        self.bus.publish(
            InventoryObserved(
                revision=self.next(), node=node, driver=names.DRIVER, unhealthy=unhealthy
            )
        )

    def move(self) -> None:
        """Move a node to another pool; in between, it is in no pool."""
        node, pool = self.random.choice(NODES), self.random.choice(POOLS)
        before = self._membership[node]
        if before and before != pool:
            self._membership[node] = ""
            self._leaving[node] = (before, pool, self._revision + 1)
            self.publish_node(node)

    def finish_move(self) -> None:
        """Finish moves for which the old pool's log has recorded that the node left."""
        for node, (old, new, since) in list(self._leaving.items()):
            if any(
                isinstance(record, NodeLeft)
                and record.node == node
                and record.node_revision >= since
                for record in self.bus.logs[old].records
            ):
                del self._leaving[node]
                self._membership[node] = new
                self.publish_node(node)
                self.count_event("moved")

    def count(self, pod: Pod) -> None:
        """Add a bound pod to its node's sum."""
        self.pods[pod.uid] = pod
        self.bus.publish(PodObserved(revision=self.next(), pod=pod))
        self._counted[pod.node].append(pod)
        self.publish_node(pod.node)

    def lose_log(self) -> tuple[str, int]:
        """Lose a log: void the pool's unallocated claims, then open a new epoch.

        Returns the domain and the lost epoch.
        """
        domain = self.random.choice(POOLS)
        lost = self.bus.logs[domain].epoch
        for claim in list(self.claims.values()):
            if claim.pool == domain and claim.allocation is None:
                self.publish_claim(replace(claim, void=last_attempt_before(lost + 1)))
        self.bus.open(domain, lost + 1)
        self.count_event("epochs")
        return domain, lost
