"""A cluster with more kinds of facts, published again: rules that taint devices, claims that
several pods share, devices that are not ready at once, attributes of other types, and policies."""

from random import Random
from typing import Any

from msgspec.structs import replace
from tests.unit.allocator.histories import second_driver
from tests.unit.allocator.histories.second_driver import SecondDriverCluster
from tests.unit.allocator.histories.truth import NODES, POOLS, SICK

from dray.api import names
from dray.api.claims import Claim
from dray.api.devices import DeviceTaintRule
from dray.api.pods import PodClaim, Policy, Pool
from dray.kube.convert import claim_from
from dray.messages.facts import (
    ClusterObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    TaintRuleObserved,
)

CONDITIONS = {"bindingConditions": ["up"], "bindingFailureConditions": ["broken"]}
FAST: tuple[dict[str, Any], ...] = ({"int": 1}, {"bool": True}, {"int": 0}, {"bool": False})
SELECTOR = {"cel": {"expression": f'device.attributes["{second_driver.NVIDIA}"].fast == 1'}}
WISHES: tuple[dict[str, Any], ...] = (
    {"deviceClassName": second_driver.NVIDIA, "selectors": [SELECTOR]},
    {"deviceClassName": second_driver.NVIDIA, "selectors": [SELECTOR], "allocationMode": "All"},
    {"deviceClassName": names.DEVICE_CLASS, "count": 1},
)
MODES = (
    names.COMPACT_FIRST,
    names.LOW_LOAD_FIRST,
    names.FRAGMENTATION_AWARE,
    names.KUBERNETES_COMPATIBLE,
)


class RepeatedFactsCluster(SecondDriverCluster):
    """In addition to the second driver's devices, one per node with conditions, fast or not."""

    def configure(self) -> None:
        """See ``Cluster.configure``."""
        self.fast = FAST[0]
        self.rules: dict[str, DeviceTaintRule] = {}
        self.see(ClusterObserved(revision=1, version="v1.36.3", waits_for_devices=True))
        super().configure()
        for pool in POOLS:
            self.see(PoolObserved(revision=2, pool=Pool(pool, "u", template="policy")))

    def publish_devices(self, node: str, flaw: str = "") -> None:
        """See ``Cluster.publish_devices``."""
        super().publish_devices(node, flaw)
        device = {"name": "port", "attributes": {"fast": self.fast}, **CONDITIONS}
        devices = [] if flaw == "without" else [device]
        self._publish(f"{node}-odd", node, 3, {"devices": devices}, flaw == "deleted")

    def _publish(
        self, name: str, node: str, count: int, says: dict[str, Any], deleted: bool = False
    ) -> None:
        super()._publish(name, node, max(count, 3), says, deleted)

    def a_claim(self, uid: str, pool: str, random: Random) -> Claim:
        """See ``Cluster.a_claim``."""
        plain = super().a_claim(uid, pool, random)
        if random.random() < 0.5:
            return plain
        requests = [{"name": "a", "exactly": random.choice(WISHES)}]
        metadata = {"name": plain.name, "namespace": plain.namespace, "uid": plain.uid}
        asked = claim_from({"metadata": metadata, "spec": {"devices": {"requests": requests}}})
        return replace(plain, spec=asked.spec)

    def taint(self, random: Random) -> None:
        """A DeviceTaintRule comes or goes."""
        name = random.choice(("one", "two"))
        rule = self.rules.pop(name, None)
        if rule is not None:
            self.see(TaintRuleObserved(revision=self.next(), rule=rule, deleted=True))
            return
        driver = random.choice((second_driver.NVIDIA, names.DRIVER, ""))
        made = self.rules[name] = DeviceTaintRule(name, SICK, driver, random.choice((*NODES, "")))
        self.see(TaintRuleObserved(revision=self.next(), rule=made))

    def share(self, random: Random) -> None:
        """A pod comes that uses the claims of others."""
        if not self.pods or not self.claims:
            return
        self.count += 1
        claim = random.choice(list(self.claims.values()))
        references = (PodClaim("of-another", claim.name, ""),)
        uid = f"p{self.count}"
        self.pods[uid] = self.make.a_pod(uid, claim.pool, claims=references)
        self.see(PodObserved(revision=self.next(), pod=self.pods[uid]))

    def retype(self, random: Random) -> None:
        """An attribute has another value, or another type alone, in the same generation."""
        self.fast = random.choice(FAST)
        node = random.choice(NODES)
        self.publish_devices(node, self.flaws[node])

    def decide_otherwise(self, random: Random) -> None:
        """The pools' policy is another one."""
        mode, topology = random.choice(MODES), random.choice(("soft", "hard"))
        policy = Policy(
            "policy", "u", placement=mode, placement_topology=topology, version=self.next()
        )
        self.see(PolicyObserved(revision=self.next(), policy=policy))

    def check_rebuilding(self) -> None:
        """See ``Cluster.check_rebuilding``; devices are known as last published, too."""
        super().check_rebuilding()
        fresh = self.rebuilt()
        for replica in self.replicas:
            for node in NODES:
                known = replica.state.published.published_for(node)
                assert repr(known) == repr(fresh.published.published_for(node))
