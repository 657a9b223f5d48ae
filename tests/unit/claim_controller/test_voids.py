"""What a pod says of attempts that are taken back."""

from typing import Any

import pytest

from dray.api.names import OWNER_KUBE_SCHEDULER, VOID
from dray.kube.object_text import text_of
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.next_step import voids_of
from dray_claim_controller.execution.decisions.rollback_rules import pod_void_annotation

ATTEMPT = 1_000_001


def pod(make: Any, expected: str = "", **fields: Any) -> CachedPod:
    made = make.pod(**fields)
    annotations = {VOID: expected} if expected else {}
    obj = {"metadata": {"annotations": annotations}}
    return CachedPod("p", made.node, 0, 0, False, pod=made, text=text_of(obj))


def cache(seen: CachedPod, *claims: Any) -> ObjectCache:
    made = ObjectCache()
    made.pods[seen.uid] = seen
    made.claims.update({held.claim.uid: held for held in claims})
    return made


@pytest.mark.parametrize(
    ("expected", "voids"),
    [
        ("", {}),
        ("a.1", {"a": 1}),
        ("a.1,b.2,a.3", {"a": 3, "b": 2}),
        ("a.b.7", {"a.b": 7}),
        ("a,.1,b.,c.-1,d.x,e.5", {"e": 5}),
    ],
)
def test_what_can_not_be_read_says_nothing(make: Any, expected: str, voids: dict[str, int]) -> None:
    assert voids_of(pod(make, expected)) == voids


def test_a_pod_records_what_is_about_to_be_cleared(make: Any) -> None:
    held = make.claim(decision=ATTEMPT, allocation=make.allocation(), reserved_for=("p",))

    assert pod_void_annotation(cache(pod(make), held), make.decision()) == f"c.{ATTEMPT}"
    reported = cache(pod(make, f"other.3,c.{ATTEMPT - 1}"), held)
    assert pod_void_annotation(reported, make.decision()) == f"c.{ATTEMPT},other.3"


def test_a_pod_that_records_it_already_is_not_patched(make: Any) -> None:
    held = make.claim(decision=ATTEMPT, allocation=make.allocation(), reserved_for=("p",))

    assert pod_void_annotation(cache(pod(make, f"c.{ATTEMPT}"), held), make.decision()) == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"allocation": None},
        {"reserved_for": ("another",)},
        {"decision": ATTEMPT + 1},
    ],
)
def test_a_pod_records_nothing_that_is_not_cleared(make: Any, fields: dict[str, Any]) -> None:
    held = {"decision": ATTEMPT, "allocation": make.allocation(), "reserved_for": ("p",), **fields}

    assert pod_void_annotation(cache(pod(make), make.claim(**held)), make.decision()) == ""


def test_a_pod_that_is_bound_or_bound_by_kube_scheduler_is_not_patched(make: Any) -> None:
    held = make.claim(decision=ATTEMPT, allocation=make.allocation())

    assert pod_void_annotation(cache(pod(make, node="node-1"), held), make.decision()) == ""
    theirs = make.decision(binder=OWNER_KUBE_SCHEDULER)
    assert pod_void_annotation(cache(pod(make), held), theirs) == ""
