"""What a pool's status remembers may have any shape: that ends no term."""

from typing import Any

import pytest

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.kube.ports import NODES, POOLS, Changed, Object
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.stored_pool_status import (
    RememberedLog,
    remembered_log,
    stored_status,
)
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.facts.handover import former_owner
from dray_claim_controller.pools.decisions.rules import PoolStatus

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
LOG = {"epoch": 3, "lastSequence": 9}
ODD: list[Any] = [
    "text",
    7,
    ["x"],
    {"owner": {"a": 1}},
    {"owner": ["dray"]},
    {"conditions": "text"},
    {"conditions": {"type": "Ready"}},
    {"conditions": [None, "x", 3]},
    {"conditions": [{}]},
    {"conditions": [{"type": {}, "status": "True"}]},
    {"conditions": [{"type": "Ready", "status": "True"}]},
    {"conditions": [{**CONDITION, "lastTransitionTime": 5}]},
    {"decisionLog": "text"},
    {"decisionLog": [1]},
    {"decisionLog": {"epoch": "three"}},
    {"decisionLog": {"epoch": {}, "lastSequence": []}},
    {"decisionLog": {"epoch": 2.5}},
]


def pool(name: str, status: Any) -> Object:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    return {"metadata": metadata, "spec": {"nodeSelector": {"pool": name}}, "status": status}


def node(name: str, of: str) -> Object:
    labels = {"pool": of}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "2", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"allocatable": {"cpu": "8"}}}


def answers(cache: ObjectCache, name: str) -> tuple[Any, ...]:
    on = f"node-{name}"
    status = PoolStatus(pool=name, nodes=(on,), epoch=1, sequence=1, now_unix_s=1e9)
    publish = Publish(key=FactKey("node", on), revision=2)
    return status.answer(cache), publish.answer(cache)


@pytest.mark.parametrize("status", ODD, ids=repr)
def test_a_status_of_another_shape_is_as_none_and_concerns_no_other_pool(status: Any) -> None:
    cache = ObjectCache()
    for name, stored in (("odd", status), ("none", None), ("other", {"decisionLog": LOG})):
        cache.apply(POOLS, Changed(pool(name, stored)))
        cache.apply(NODES, Changed(node(f"node-{name}", name)))
    odd, none = answers(cache, "odd"), answers(cache, "none")
    assert odd[0] == none[0]
    assert [fact.node.pool for fact in odd[1]] == ["odd"]
    assert remembered_log(cache.plain[POOLS.plural]["odd"]) == RememberedLog()
    assert former_owner(cache.plain[POOLS.plural]["odd"]) == OWNER_DRAY
    assert remembered_log(cache.plain[POOLS.plural]["other"]) == RememberedLog(3, 9)


def test_valid_fields_stay_if_others_are_invalid() -> None:
    status = {"owner": OWNER_KUBE_SCHEDULER, "decisionLog": LOG, "conditions": "text", "nodes": 1}
    assert stored_status(pool("p", status)) == {
        "owner": OWNER_KUBE_SCHEDULER,
        "decisionLog": LOG,
        "nodes": 1,
    }
    whole = {"decisionLog": {**LOG, "factsCreated": "noon"}, "conditions": [CONDITION]}
    assert stored_status(pool("p", whole)) == whole
