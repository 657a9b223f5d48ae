"""What the cache keeps event by event equals what is found by looking at everything."""

import random
from typing import Any

import pytest
from tests.counted import our_pods

from dray.api.names import (
    ALLOCATION_GATE,
    DECISION,
    DEVICE_CLASS,
    DRIVER,
    GPUPOOL,
    POOL_LABEL,
    SHAPE,
    VOID,
)
from dray.kube.ports import CLAIMS, NODES, PODS, POOLS, Changed, Deleted, Listed, Object, Resource
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache, PodValue
from dray_claim_controller.cache.pool_selectors import selects
from dray_claim_controller.execution.decisions.adoption import is_unfinished
from dray_claim_controller.execution.decisions.unschedulable import cleared, unschedulable_attempt
from dray_claim_controller.facts.pool_capacity import waiting_in

HISTORIES = range(12)
STEPS = 250
POOLS_OF_ALL = ("p0", "p1", "p2")
VALUES: tuple[PodValue[Any], ...] = (waiting_in, is_unfinished, cleared, unschedulable_attempt)


class History:
    """A cache, and objects that come, change and go at random."""

    def __init__(self, seed: int, cache: ObjectCache | None = None) -> None:
        self.cache = cache or ObjectCache()
        self.random = random.Random(seed)
        self.revision = 0
        self.objects: dict[tuple[Resource, str], Object] = {}

    def step(self) -> None:
        resource = self.random.choice((PODS, PODS, CLAIMS, CLAIMS, NODES, POOLS))
        name = f"{resource.plural[0]}{self.random.randrange(4 if resource is POOLS else 8)}"
        known = self.objects.get((resource, name))
        if known is not None and self.random.random() < 0.25:
            del self.objects[resource, name]
            if self.random.random() < 0.3:
                self.relist(resource)
                return
            self.revision += 1
            known["metadata"]["resourceVersion"] = str(self.revision)
            self.cache.apply(resource, Deleted(known))
            return
        made = self.make(resource, name)
        uid = f"{name}-{self.revision}" if known is None else known["metadata"]["uid"]
        self.revision += 1
        made["metadata"] |= {"name": name, "uid": uid, "resourceVersion": str(self.revision)}
        self.objects[resource, name] = made
        self.cache.apply(resource, Changed(made))

    def relist(self, resource: Resource) -> None:
        found = tuple(obj for (kind, _), obj in self.objects.items() if kind is resource)
        self.cache.apply(resource, Listed(found, self.revision))

    def make(self, resource: Resource, name: str) -> Object:
        one_of = self.random.choice
        if resource is POOLS:
            selector = one_of((None, {}, {"zone": "a"}, {"zone": "b", "kind": "x"}))
            spec: Object = {} if selector is None else {"nodeSelector": selector}
            if self.random.random() < 0.1:
                spec = {"nodeSelector": 7}
            return {"metadata": {}, "spec": spec}
        if resource is NODES:
            labels = {"zone": one_of("ab"), "kind": one_of("xy")}
            if self.random.random() < 0.5:
                labels[POOL_LABEL] = one_of(POOLS_OF_ALL)
            return {"metadata": {"labels": labels}, "spec": {}, "status": {}}
        return self.claim() if resource is CLAIMS else self.pod(name)

    def claim(self) -> Object:
        one_of = self.random.choice
        annotations = {DECISION: one_of(("0", "1000001", "1000002")), VOID: one_of("01")}
        requests = [{"name": "r", "exactly": {"deviceClassName": one_of((DEVICE_CLASS, "other"))}}]
        metadata = {"namespace": "ns", "annotations": annotations}
        if self.random.random() < 0.7:
            metadata["labels"] = {POOL_LABEL: one_of(POOLS_OF_ALL)}
        found: Object = {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
        if self.random.random() < 0.5:
            node = f"n{self.random.randrange(8)}"
            share = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"}
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            found["status"] = {"allocation": {"devices": {"results": [share]}}}
            found["status"]["allocation"]["nodeSelector"] = terms
        return found

    def pod(self, name: str) -> Object:
        one_of = self.random.choice
        annotations = {GPUPOOL: one_of(POOLS_OF_ALL)}
        if self.random.random() < 0.5:
            annotations[SHAPE] = "{}"
        reference: Object = {"name": "gpu", "resourceClaimTemplateName": one_of(("t1", "t2"))}
        if self.random.random() < 0.5:
            reference = {"name": "gpu", "resourceClaimName": f"r{self.random.randrange(8)}"}
        spec: Object = {"containers": [{"name": "c"}], "resourceClaims": [reference]}
        if self.random.random() < 0.3:
            spec["nodeName"] = f"n{self.random.randrange(8)}"
        if self.random.random() < 0.3:
            spec["schedulingGates"] = [{"name": ALLOCATION_GATE}]
        reason = one_of(("Unschedulable", "SchedulingGated"))
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        status = {"phase": one_of(("Pending", "Running", "Failed")), "conditions": [condition]}
        metadata: Object = {"namespace": "ns", "annotations": annotations}
        if self.random.random() < 0.1:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        made = [{"name": "gpu", "resourceClaimName": f"r{self.random.randrange(8)}"}]
        if "resourceClaimName" not in reference and self.random.random() < 0.8:
            status["resourceClaimStatuses"] = made
        return {"metadata": metadata, "spec": spec, "status": status}


def selected_by_all(cache: ObjectCache, value: PodValue[Any]) -> dict[str, Any]:
    found = {cached.uid: value(cache, cached) for cached in our_pods(cache)}
    return {uid: one for uid, one in found.items() if one is not None}


def templates_used(cache: ObjectCache) -> set[str]:
    return {
        f"ns/{entry.get('resourceClaimTemplateName') or ''}"
        for cached in cache.pods.values()
        if cached.object and not cached.terminal
        for entry in cached.object["spec"]["resourceClaims"]
    }


def open_claims(cache: ObjectCache) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for uid, cached in cache.claims.items():
        claim = cached.claim
        if not cached.ours or claim.allocation is not None:
            continue
        pools = {claim.pool, *(pod.pool for pod in cache.users.of(claim))} if claim.pool else {""}
        for pool in pools:
            found.setdefault(pool, set()).add(uid)
    return found


@pytest.mark.parametrize("seed", HISTORIES)
def test_pods_and_claims_are_selected_as_by_a_look_at_all_of_them(seed: int) -> None:
    history = History(seed)
    for number in range(STEPS):
        history.step()
        cache = history.cache
        assert cache.template_users.keys() == templates_used(cache)
        assert {pool: set(uids) for pool, uids in cache.open_claims.items()} == open_claims(cache)
        if number % 3 == 0:
            for value in VALUES:
                selection, found = cache.select(value), selected_by_all(cache, value)
                assert selection.values == found
                for one in found.values():
                    with_it = {uid for uid, other in found.items() if other == one}
                    assert set(selection.with_value(one)) == with_it
                assert cache.in_order(found) == list(found)


@pytest.mark.parametrize("seed", HISTORIES)
def test_nodes_are_selected_as_by_a_look_at_all_pools(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        selectors, nodes = history.cache.pool_selectors, history.cache.plain[NODES.plural]
        labels = {name: obj["metadata"]["labels"] for name, obj in nodes.items()}
        by_node = {
            node: tuple(sorted(p.name for p in selectors.pools().values() if selects(p, own)))
            for node, own in labels.items()
        }
        assert {node: selectors.of_node(node) for node in labels} == by_node
        stored = history.cache.plain[POOLS.plural]
        assert set(selectors.unreadable()) == stored.keys() - selectors.pools().keys()
        for name, pool in selectors.pools().items():
            mine = {node for node, names in by_node.items() if name in names}
            assert set(selectors.selected_by(name)) == set(selectors.selected(pool)) == mine
            assert set(selectors.contested_with(name)) == {n for n in mine if len(by_node[n]) > 1}


def test_nothing_is_kept_of_objects_that_are_gone() -> None:
    history = History(1)
    for _ in range(STEPS):
        history.step()
    for resource, _ in tuple(history.objects):
        history.objects = {key: obj for key, obj in history.objects.items() if key[0] != resource}
        history.relist(resource)
    cache = history.cache
    kept = (
        cache.claims,
        cache.pods,
        cache.node_revision,
        cache.template_users,
        cache.open_claims,
        cache.devices.holders,
        cache.unreadable,
        cache.select(waiting_in).values,
    )
    assert not any(kept)
    assert not list(cache.devices.holders_on("n0"))


@pytest.mark.parametrize("resource", [PODS, CLAIMS], ids=["pod", "claim"])
def test_what_an_event_looks_at_does_not_grow_with_the_cluster(resource: Resource) -> None:
    """Counts the calls of a function of pods, not time."""

    def calls(pods: int) -> int:
        cache, looked_at = ObjectCache(), []

        def counted(_: ObjectCache, cached: CachedPod) -> str:
            looked_at.append(cached.uid)
            return cached.uid

        for number in range(pods):
            cache.apply(CLAIMS, Changed(_numbered_claim(number, 1)))
            cache.apply(PODS, Changed(_numbered_pod(number, 1)))
        cache.select(counted)
        looked_at.clear()
        changed = _numbered_pod(0, 2) if resource is PODS else _numbered_claim(0, 2)
        cache.apply(resource, Changed(changed))
        cache.select(counted)
        return len(looked_at)

    assert calls(10) == calls(500) == 1


def _numbered_pod(number: int, revision: int) -> Object:
    reference = {"name": "gpu", "resourceClaimName": f"claim-{number}"}
    spec = {"containers": [{"name": "c"}], "resourceClaims": [reference]}
    return {"metadata": _metadata(f"pod-{number}", revision), "spec": spec}


def _numbered_claim(number: int, revision: int) -> Object:
    requests = [{"name": "r", "exactly": {"deviceClassName": DEVICE_CLASS}}]
    spec = {"devices": {"requests": requests}}
    return {"metadata": _metadata(f"claim-{number}", revision), "spec": spec}


def _metadata(name: str, revision: int) -> Object:
    return {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(revision)}
