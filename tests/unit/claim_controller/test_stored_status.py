"""What a pool's status remembers may have any shape: that ends no term."""

from typing import Any

import pytest

from dray.domain.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.kube.ports import NODES, POOLS, Changed, Object
from dray_claim_controller.deciding.observing import PoolStatus, Publish
from dray_claim_controller.domains.rules import Recorded, recorded
from dray_claim_controller.domains.stored_status import stored_status
from dray_claim_controller.observe.owners import former_owner
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import Key

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


def answers(picture: Picture, name: str) -> tuple[Any, ...]:
    on = f"node-{name}"
    status = PoolStatus(pool=name, nodes=(on,), epoch=1, sequence=1, now_unix_s=1e9)
    publish = Publish(key=Key("node", on), revision=2)
    return status.answer(picture), publish.answer(picture)


@pytest.mark.parametrize("status", ODD, ids=repr)
def test_a_status_of_another_shape_is_as_none_and_concerns_no_other_pool(status: Any) -> None:
    picture = Picture()
    for name, stored in (("odd", status), ("none", None), ("other", {"decisionLog": LOG})):
        picture.apply(POOLS, Changed(pool(name, stored)))
        picture.apply(NODES, Changed(node(f"node-{name}", name)))
    odd, none = answers(picture, "odd"), answers(picture, "none")
    assert odd[0] == none[0]
    assert [fact.node.pool for fact in odd[1]] == ["odd"]
    assert recorded(picture.plain[POOLS.plural]["odd"]) == Recorded()
    assert former_owner(picture.plain[POOLS.plural]["odd"]) == OWNER_DRAY
    assert recorded(picture.plain[POOLS.plural]["other"]) == Recorded(3, 9)


def test_what_has_its_shape_stays_beside_what_has_not() -> None:
    status = {"owner": OWNER_KUBE_SCHEDULER, "decisionLog": LOG, "conditions": "text", "nodes": 1}
    assert stored_status(pool("p", status)) == {
        "owner": OWNER_KUBE_SCHEDULER,
        "decisionLog": LOG,
        "nodes": 1,
    }
    whole = {"decisionLog": {**LOG, "factsCreated": "noon"}, "conditions": [CONDITION]}
    assert stored_status(pool("p", whole)) == whole
