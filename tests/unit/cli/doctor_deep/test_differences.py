"""``dray doctor --deep``: each difference is named, with who says what and who is right."""

import dataclasses
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.cli.doctor_deep.snapshots import (
    CARD,
    NODE,
    ONE,
    OTHER,
    POOL,
    SLICE,
    START_UNIX_S,
    UID,
    allocation,
    claim,
    decided,
    found,
    released,
    snapshot_of,
)

from dray.api import json_codec
from dray.api.claims import TOO_LARGE, Allocation, Claim, ClaimSpec, GivenUp
from dray.api.devices import OpaqueConfig
from dray.api.pods import Node
from dray.messages.decisions import AnyRecord
from dray_allocator.core.dump import holdings_of
from dray_cli.doctor.deep.compare import differences
from dray_cli.doctor.deep.snapshot import ClusterSnapshot, LogSummary, ReplicaAnswer


@pytest.mark.parametrize(
    ("held", "records"),
    [
        (None, []),
        (None, [decided(ONE)]),
        (ONE, [decided(ONE), released("committed")]),
        (allocation("gpu-0", vram="16384Mi"), [decided(ONE), released("committed")]),
        (None, [decided(ONE), released("voided")]),
        (OTHER, [decided(ONE), released("voided"), decided(OTHER, 2), released("committed", 2)]),
    ],
    ids=["waits", "under way", "committed", "in other words", "voided", "decided again"],
)
def test_what_is_as_it_should_be_is_not_a_difference(
    held: Allocation | None, records: list[AnyRecord]
) -> None:
    assert found(snapshot_of([claim(held)], records)) == {}


@pytest.mark.parametrize(
    ("written", "records", "kind"),
    [
        ([claim(OTHER)], [decided(ONE), released("committed")], "another-allocation"),
        ([claim(OTHER)], [decided(ONE)], "another-allocation"),
        ([claim(OTHER)], [decided(ONE), released("voided")], "another-allocation"),
        ([claim(ONE, void=1)], [decided(ONE), released("voided")], "allocated-although-voided"),
        ([claim(ONE)], [decided(ONE)], "commit-not-noted"),
        ([claim(None, void=1)], [decided(ONE)], "void-not-noted"),
        ([claim(None)], [decided(ONE), released("committed")], "allocation-cleared"),
        ([], [decided(ONE)], "claim-is-gone"),
        ([], [decided(ONE), released("committed")], "claim-is-gone"),
        ([claim(ONE)], [], "nobody-decided-it"),
    ],
)
def test_a_log_that_says_otherwise_than_the_status_is_named(
    written: list[Claim], records: list[AnyRecord], kind: str
) -> None:
    (one,) = found(snapshot_of(written, records)).values()

    assert one.kind == kind
    assert one.about == f"claim default/of-{UID}"
    assert one.right.startswith("Kubernetes")
    assert [side.who for side in one.sides] == ["Kubernetes", f"log of {POOL}"]


def test_both_devices_are_named_with_what_each_side_says_and_since_when() -> None:
    one = found(snapshot_of([claim(OTHER)], [decided(ONE), released("committed")]))[
        "another-allocation"
    ]

    assert one.devices == ("gpu-0 on node-1", "gpu-1 on node-1")
    kubernetes, log = one.sides
    assert kubernetes.says == "gpu-1 on node-1 vram=16Gi"
    assert log.says == "attempt 1 is committed: gpu-0 on node-1 vram=16Gi"
    assert (kubernetes.since_unix_s, log.since_unix_s) == (START_UNIX_S + 702, START_UNIX_S + 701)
    reported = one.finding().line().splitlines()
    assert reported[0].endswith("another allocation, gpu-0 on node-1, gpu-1 on node-1")
    assert reported[1].endswith("gpu-1 on node-1 vram=16Gi, since 1970-01-12 13:58:22Z")
    assert [line.split()[0] for line in reported[1:]] == ["Kubernetes", "log", "right", "do"]


def test_a_decision_is_late_only_after_the_allocators_own_time_out() -> None:
    assert found(snapshot_of([claim(None)], [decided(ONE)], later_s=40)) == {}
    late = found(snapshot_of([claim(None)], [decided(ONE)], later_s=60))
    assert list(late) == ["decision-not-carried-out"]


@pytest.mark.parametrize(
    "node", [{"recalled_unix_s": 5.0}, {"node": Node(NODE, "n", POOL, owner="kube-scheduler")}]
)
@pytest.mark.parametrize("records", [[], [decided(ONE), released("voided")]])
def test_what_kube_scheduler_may_have_allocated_is_not_a_difference(
    node: dict[str, Any], records: list[AnyRecord]
) -> None:
    snapshot = snapshot_of([claim(OTHER)], records)
    snapshot.scheduler_nodes[NODE] = None
    assert found(snapshot) == {}


def test_a_log_that_was_trimmed_or_opened_later_need_not_know_an_allocation() -> None:
    trimmed = snapshot_of([claim(ONE)])
    trimmed.logs[POOL] = LogSummary(whole=False)
    later = snapshot_of([claim(ONE)])
    later.logs[POOL] = LogSummary(whole=True, opened_unix_s=START_UNIX_S + 601)
    assert found(trimmed) == found(later) == {}


def test_a_claim_that_kubernetes_refuses_to_write_is_named_with_what_is_kept_for_it() -> None:
    """Its fact says more than its annotations do, and is not old for that."""
    kept = snapshot_of([claim(None, decision=1)], [decided(ONE)], later_s=600)
    kept.given_up[UID] = GivenUp(1, 0, 7, "policy denied the request")
    (one,) = found(kept).values()
    assert (one.kind, one.devices) == ("claim-is-refused", ("gpu-0 on node-1",))
    assert "policy denied the request" in one.sides[1].says

    given_back = snapshot_of(
        [claim(None)], [decided(ONE), released("voided")], [claim(None, void=1)], later_s=600
    )
    given_back.given_up[UID] = GivenUp(1, 1, 7, "policy denied the request")
    (one,) = found(given_back).values()
    assert (one.kind, one.devices) == ("claim-is-refused", ())


def test_a_fact_that_is_old_is_named_by_the_fields_that_differ() -> None:
    records = [decided(ONE), released("committed")]
    one = found(snapshot_of([claim(ONE, void=3)], records, [claim(ONE)]))["stale-fact"]

    assert [side.says for side in one.sides] == ["void 3", "void 0"]
    assert "claim-controller" in one.do


@pytest.mark.parametrize(
    ("written", "facts"), [([], [claim(ONE)]), ([claim(ONE)], [])], ids=["gone", "unseen"]
)
def test_a_claim_that_one_side_lacks_is_named_once(
    written: list[Claim], facts: list[Claim]
) -> None:
    records = [decided(ONE), released("committed")]
    one = found(snapshot_of(written, records, facts))["stale-fact"]

    says = [side.says for side in one.sides]
    assert sorted(says) == ["gpu-0 on node-1 vram=16Gi", "there is no such claim"]


def test_other_drivers_claims_are_none_of_the_facts() -> None:
    foreign = Claim("f", "default", "nic", 1, "", ClaimSpec())
    assert found(snapshot_of([foreign], facts=[])) == {}


def test_a_slice_that_the_bus_shows_otherwise_is_named_with_its_devices() -> None:
    snapshot = snapshot_of([])
    snapshot.slices[SLICE.name] = replace(SLICE, generation=2, devices=(CARD,))
    snapshot.slices["slice-2"] = replace(SLICE, name="slice-2")
    reported = differences(snapshot, floor=0)

    assert [one.about for one in reported] == ["slice slice-1", "slice slice-2"]
    assert reported[0].devices == ("gpu-1 on node-1",)
    assert reported[0].sides[0].says == "generation 2 of pool node-1, 1 devices"
    assert reported[1].sides[1].says == "there is no such slice"


def test_a_card_with_more_in_use_than_it_has_is_reported_with_its_users() -> None:
    much = allocation("gpu-0", vram="30Gi")
    both = [claim(much), claim(much, "claim-2")]
    records = [decided(much), decided(much, uid="claim-2"), released("committed")]
    one = found(snapshot_of(both, records))["double-allocation"]

    assert one.about == "device gpu-0 on node-1"
    assert "60Gi are in use" in one.sides[0].says
    assert [side.who for side in one.sides[1:]] == ["default/of-claim-1", "default/of-claim-2"]


def replica(snapshot: ClusterSnapshot, **changes: Any) -> ClusterSnapshot:
    """The sight, with the answer of a replica that folded the same, but for the changes."""
    domain = snapshot.state.domains[POOL]
    position = snapshot.state.facts.position
    same = ReplicaAnswer(1, "replica-1", position, 3, holdings_of(snapshot.state, domain))
    snapshot.replicas[POOL] = dataclasses.replace(same, **changes)
    return snapshot


def test_a_replica_that_folded_the_same_says_the_same() -> None:
    snapshot = replica(snapshot_of([claim(ONE)], [decided(ONE), released("committed")]))
    assert found(snapshot, floor=snapshot.state.facts.position) == {}


def test_a_replica_that_remembers_something_else_is_at_fault() -> None:
    snapshot = snapshot_of([claim(ONE)], [decided(ONE), released("committed")])
    known = holdings_of(snapshot.state, snapshot.state.domains[POOL])[UID]
    wrong = msgspec.structs.replace(known, used=OTHER.devices)
    one = found(replica(snapshot, holdings={UID: wrong}))["replica-diverged"]

    assert one.sides[0].says.endswith("in use: gpu-0 on node-1 vram=16Gi")
    assert one.sides[1].who == "replica-1"
    assert one.sides[1].says.endswith("in use: gpu-1 on node-1 vram=16Gi")
    assert one.right.startswith("facts and log")
    forgot = found(replica(snapshot, holdings={}))["replica-diverged"]
    assert forgot.sides[1].says == "nothing"


@pytest.mark.parametrize("changes", [{"facts_sequence": 2}, {"epoch": 7}])
def test_a_replica_that_lags_is_reported_instead_of_the_consequences(changes: Any) -> None:
    snapshot = replica(snapshot_of([claim(ONE)], [decided(ONE)]), holdings={}, **changes)
    reported = [one for one in differences(snapshot, floor=5) if one.about == f"pool {POOL}"]
    assert [one.kind for one in reported] == ["replica-lags"]


def with_config(text: bytes, **changes: Any) -> Claim:
    parameters = json_codec.decode(text, msgspec.json.Decoder(dict[str, Any]), **changes)
    return replace(claim(None), spec=ClaimSpec(config=(OpaqueConfig("x", parameters),)))


def test_deep_parameters_are_equal_wherever_they_were_decoded() -> None:
    text = b'{"a":' + b"[" * 9_000 + b"]" * 9_000 + b"}"
    written, fact = with_config(text), with_config(text, nesting=248)
    assert written != fact
    assert found(snapshot_of([written], [], [fact])) == {}
    other = with_config(text.replace(b"[]", b"[1]"))
    assert list(found(snapshot_of([written], [], [other]))) == ["stale-fact"]


def test_a_fact_that_is_too_large_for_the_bus_is_not_a_difference() -> None:
    written = replace(claim(ONE), spec=ClaimSpec(config=(OpaqueConfig("x", {}),)))
    why = f"{TOO_LARGE}2 bytes as a fact, 1 at most"
    snapshot = snapshot_of(
        [written],
        [decided(ONE), released("committed")],
        [replace(written, spec=ClaimSpec(unsupported=(why,)))],
    )
    assert found(snapshot) == {}
