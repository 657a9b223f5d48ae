"""Changes from several watches are put into one order and checked in it."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dray.api import names
from dray.api.groups import GROUP_NAME_KEYS
from dray.api.names import DERIVED_FROM_LABEL, DRIVER, POOL_LABEL
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NODES,
    POD_GROUPS,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    Changed,
    Deleted,
    Listed,
    Object,
    Resource,
)
from dray_node_agent.decisions.gpus import device_name
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.files.checkpoint import CheckpointFile
from tools.faults import leftovers
from tools.faults.history import WATCHED, StackHistory, invariants_of
from tools.simulation.invariants import QuietChecks
from tools.simulation.processes import SimulatedNodeGpus

CARDS = tuple(device_name(f"GPU-n1-{number}") for number in range(2))


def stamped(obj: Object, version: int, **metadata: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version), **metadata}}


def claim(name: str, version: int, card: str | None, tflops: str = "200") -> Object:
    status: Object = {}
    if card is not None:
        result = {
            "request": "gpu",
            "driver": DRIVER,
            "pool": "n1",
            "device": card,
            "consumedCapacity": {"virtual_tflops": tflops, "virtual_vram": "1Gi"},
        }
        field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        status["allocation"] = {"devices": {"results": [result]}, "nodeSelector": selector}
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
        },
        "spec": {"devices": {"requests": [request]}},
        "status": status,
    }


def history() -> StackHistory:
    """One node with two cards of 312 TFLOPS is known."""
    made = StackHistory()
    published: Iterable[Object] = slices(
        SimulatedNodeGpus("n1", 2).read(), NodeState("n1"), generation=1
    )
    there = [
        stamped(one, 1, name=f"slice-{number}", uid=f"slice-{number}")
        for number, one in enumerate(published)
    ]
    made.apply(SLICES, Listed(tuple(there), 1))
    made.apply(CLAIMS, Listed((), 1))
    return made


def test_two_pods_on_one_card_that_has_room_for_one_are_seen() -> None:
    made = history()
    made.apply(CLAIMS, Changed(claim("a", 5, CARDS[0])))
    made.apply(CLAIMS, Changed(claim("b", 6, CARDS[0])))
    (violation,) = made.check_all().violations
    assert "DOUBLE ALLOCATION" in violation


def test_a_card_sold_again_after_it_was_given_back_is_fine() -> None:
    made = history()
    made.apply(CLAIMS, Changed(claim("a", 5, CARDS[0])))
    made.apply(CLAIMS, Deleted(claim("a", 6, CARDS[0])))
    made.apply(CLAIMS, Changed(claim("b", 7, CARDS[0])))
    assert made.check_all().violations == []


def test_versions_order_changes_whichever_watch_tells_first() -> None:
    made = history()
    made.apply(CLAIMS, Changed(claim("b", 7, CARDS[0])))
    made.apply(CLAIMS, Changed(claim("a", 5, CARDS[0])))
    made.apply(CLAIMS, Deleted(claim("a", 6, CARDS[0])))
    assert made.check_all().violations == []


def test_an_allocation_that_moves_without_a_rollback_is_reported() -> None:
    made = history()
    made.apply(CLAIMS, Changed(claim("a", 5, CARDS[0])))
    made.apply(CLAIMS, Changed(claim("a", 6, CARDS[1])))
    (violation,) = made.check_all().violations
    assert "moved from" in violation


def member(name: str, version: int, node: str) -> Object:
    """A pod of a gang of two."""
    annotations = {GROUP_NAME_KEYS[0]: "gang", names.GPUPOOL: "pool"}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    obj: Object = {"metadata": metadata | {"annotations": annotations}, "status": {}}
    return stamped(obj | {"spec": {"nodeName": node} if node else {}}, version)


def of(pod: str, one: Object) -> Object:
    """A claim of a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-of-{pod}"}
    return one | {"metadata": one["metadata"] | {"ownerReferences": [owner | {"controller": True}]}}


def gang_whose_first_pod_is_bound(card_of_b: str | None) -> list[str]:
    """The violations."""
    made = history()
    group = {"metadata": {"name": "gang", "namespace": "default"}, "spec": {"minMember": 2}}
    made.apply(POD_GROUPS, Changed(stamped(group, 2)))
    for version, name in ((3, "a"), (4, "b")):
        made.apply(PODS, Changed(member(name, version, "")))
    made.apply(CLAIMS, Changed(of("a", claim("a", 5, CARDS[0]))))
    made.apply(CLAIMS, Changed(of("b", claim("b", 6, card_of_b))))
    made.apply(PODS, Changed(member("a", 7, "n1")))
    return [one for one in made.check_all().violations if "of its group" in one]


def test_a_pod_of_a_gang_that_is_bound_before_all_have_devices_is_reported() -> None:
    assert gang_whose_first_pod_is_bound(CARDS[1]) == []
    (violation,) = gang_whose_first_pod_is_bound(None)
    assert violation == "pod a is bound while 1 pods of its group have devices"


def test_an_allocation_that_was_rolled_back_first_may_move() -> None:
    made = history()
    for version, card in ((5, CARDS[0]), (6, None), (7, CARDS[1])):
        made.apply(CLAIMS, Changed(claim("a", version, card)))
    assert made.check_all().violations == []


def test_changes_that_a_watch_missed_before_a_relist_are_not_errors() -> None:
    made = history()
    made.apply(CLAIMS, Changed(claim("a", 5, CARDS[0])))
    made.apply(CLAIMS, Changed(claim("b", 6, CARDS[1])))
    # Meanwhile a was taken back and placed again, and b was deleted.
    made.apply(CLAIMS, Listed((claim("a", 9, CARDS[1]), claim("c", 8, CARDS[0])), 10))
    assert made.check_all().violations == []
    made.apply(CLAIMS, Changed(claim("d", 11, CARDS[0])))
    assert "DOUBLE ALLOCATION" in made.check_all().violations[0]


def test_what_is_there_now_is_judged_without_its_past() -> None:
    now = {CLAIMS: Listed((claim("b", 7, CARDS[0]), claim("a", 8, CARDS[0])), 9)}
    published = history().check_all().store.of(SLICES).values()
    violations = invariants_of({**now, SLICES: Listed(tuple(published), 9)}).violations
    assert "DOUBLE ALLOCATION" in violations[0]


def test_a_pod_that_waits_although_it_fits_is_seen_in_what_is_watched() -> None:
    def wish(tflops: str) -> Object:
        asked = {"gpupool": "p", "tflops-request": tflops, "vram-request": "1Gi", "gpu-count": "2"}
        annotations = {f"tensor-fusion.ai/{name}": value for name, value in asked.items()}
        entry = {"name": "gpu", "resourceClaimName": "b"}
        spec = {"containers": [{"name": "app"}], "resourceClaims": [entry]}
        metadata = {"name": "b", "namespace": "default", "annotations": annotations}
        return {"metadata": metadata, "spec": spec, "status": {}}

    def waits(tflops: str) -> list[str]:
        node = {
            "metadata": {"name": "n1", "labels": {POOL_LABEL: "p"}},
            "spec": {},
            "status": {"allocatable": {"cpu": "6"}},
        }
        published = list(history().check_all().store.of(SLICES).values())
        there: dict[Resource, list[Object]] = {
            NODES: [node],
            POOLS: [{"metadata": {"name": "p"}}],
            SLICES: published,
            CLAIMS: [claim("a", 5, CARDS[0])],
            PODS: [wish(tflops)],
        }
        listed = {
            kind: Listed(tuple(stamped(obj, 9, uid="") for obj in there.get(kind, ())), 9)
            for kind in WATCHED
        }
        return [
            one
            for one in QuietChecks(invariants_of(listed), lambda: ()).problems()
            if "waits" in one
        ]

    assert waits("100") == ["pod b waits, but fits on n1"]
    assert waits("200") == []


def test_it_knows_when_it_has_seen_everything() -> None:
    made = history()
    made.apply(CLAIMS, Changed(claim("a", 5, CARDS[0])))
    assert made.matches(CLAIMS, [claim("a", 5, CARDS[0])])
    assert not made.matches(CLAIMS, [claim("a", 6, None)])
    assert not made.matches(CLAIMS, [])


async def test_it_wakes_waiters_after_a_number_of_changes_of_a_kind() -> None:
    made = history()
    waiting = asyncio.create_task(made.wait_for_changes(2, CLAIMS))
    made.apply(CLAIMS, Changed(claim("a", 5, None)))
    await asyncio.sleep(0)
    assert not waiting.done()
    made.apply(CLAIMS, Changed(claim("a", 6, CARDS[0])))
    await asyncio.wait_for(waiting, 5)


def test_objects_that_outlive_their_pods_are_named() -> None:
    derived = {"metadata": {"name": "base-1", "labels": {DERIVED_FROM_LABEL: "base"}}}
    base: Object = {"metadata": {"name": "base"}}
    listed = {
        PODS: Listed((), 1),
        CLAIMS: Listed((claim("a", 1, None),), 1),
        TEMPLATES: Listed((derived, base), 1),
        BIND_REQUESTS: Listed((), 1),
    }
    assert leftovers.objects(listed) == [
        "ResourceClaim a remains",
        "ResourceClaimTemplate base-1 remains",
    ]


def test_files_and_prepared_claims_left_on_nodes_are_named(tmp_path: Path) -> None:
    state = tmp_path / "n1" / "state"
    CheckpointFile(state / "checkpoint.json", "boot").save({})
    (tmp_path / "n1" / "record.json").touch()
    before = leftovers.files(tmp_path)
    assert leftovers.node_leftovers(tmp_path, before, ["n1"]) == []

    (tmp_path / "n1" / "cdi.json.tmp").touch()
    (tmp_path / "n1" / "record.json").unlink()
    (state / "checkpoint.json").write_text("{torn")
    first, second, third = leftovers.node_leftovers(tmp_path, before, ["n1"])
    assert first == "file n1/cdi.json.tmp remains"
    assert second == "file n1/record.json is missing"
    assert "corrupt" in third


def test_sockets_of_a_restarted_agent_count_as_those_of_the_one_before(tmp_path: Path) -> None:
    CheckpointFile(tmp_path / "n1" / "state" / "checkpoint.json", "boot").save({})
    own = tmp_path / "n1" / "dra-392595d9.sock"
    own.touch()
    before = leftovers.files(tmp_path)
    own.rename(own.with_name("dra-4435118f.sock"))
    assert leftovers.node_leftovers(tmp_path, before, ["n1"]) == []

    own.touch()
    assert leftovers.node_leftovers(tmp_path, before, ["n1"]) == ["file n1/dra-*.sock remains"]
