"""The comparison with Kubernetes' allocator: what it asks, and what it calls a difference."""

import copy
import json
from fractions import Fraction

import pytest
from tests.unit.allocator.allocation_oracle.sample import FITTING, answer

LEAST_SHARE = 0.035
"""Of the first few cases; of a full run it is 0.05, and the comparison itself sees to it."""


def test_the_same_seed_makes_the_same_cases_however_many(module, asked):
    again = list(module("allocation.cases").cases(1, 20, "1.36"))
    assert json.dumps([case.question for case in again]) == json.dumps(
        [case.question for case in asked[:20]]
    )


def test_another_seed_makes_other_cases(module, asked):
    other = next(iter(module("allocation.cases").cases(2, 1, "1.36")))
    assert other.question["slices"] != asked[0].question["slices"]


def test_each_feature_is_in_enough_cases(module, asked):
    present, without = module("allocation.shares").questions_without(asked, 1)
    shares = module("allocation.shares").Shares(present, len(asked))
    name, share = shares.rarest()
    assert share >= LEAST_SHARE, f"{name} is in {share:.1%}"
    assert {question["id"].partition(" without ")[0] for question in without} == {asked[0].id}


@pytest.mark.parametrize("minor", ["1.34", "1.35"])
def test_a_server_without_the_gates_is_asked_nothing_that_it_would_drop(module, minor):
    text = json.dumps([case.question for case in module("allocation.cases").cases(1, 200, minor)])
    for field in ("allowMultipleAllocations", "sharedCounters", "taints", "bindingConditions"):
        assert f'"{field}"' not in text


@pytest.mark.parametrize("minor", ["1.34", "1.36"])
def test_the_search_for_an_answer_is_bounded(module, minor):
    for case in module("allocation.cases").cases(1, 200, minor):
        devices = sum(len(one["spec"].get("devices", [])) for one in case.question["slices"])
        combinations = module("allocation.effort")._combinations(case.question, devices)
        assert combinations <= module("allocation.effort").MOST_COMBINATIONS


@pytest.mark.parametrize(("minor", "count"), [("1.34", 5), ("1.35", 5), ("1.36", 8)])
def test_where_each_order_is_tried_fewer_devices_are_asked_for(module, minor, count):
    question = {
        "k8s": minor,
        "slices": [{"spec": {"devices": [{"name": f"gpu-{n}"} for n in range(8)]}}],
        "claims": [{"spec": {"devices": {"requests": [asking_for(8)]}}}],
    }
    bounded = module("allocation.effort").bounded(question)
    assert bounded["claims"][0]["spec"]["devices"]["requests"] == [asking_for(count)]


def asking_for(count):
    return {"name": "r", "exactly": {"allocationMode": "ExactCount", "count": count}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40Gi", Fraction(40 * 2**30)),
        ("500m", Fraction(1, 2)),
        ("1.5k", Fraction(1500)),
        ("-3", Fraction(-3)),
        ("1e3", Fraction(1000)),
        ("2E", Fraction(2 * 10**18)),
        ("7u", Fraction(7, 10**6)),
    ],
)
def test_amounts_are_read_as_kubernetes_writes_them(module, text, value):
    assert module("allocation.quantities").amount_of(text) == value


def test_a_word_is_not_an_amount(module):
    with pytest.raises(ValueError, match="'much' is not a quantity"):
        module("allocation.quantities").amount_of("much")


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda one: one["devices"]["results"][0].update(device="other"), "other device"),
        (
            lambda one: one["devices"]["results"][0].update(consumedCapacity={"memory": "1"}),
            "other consumed capacity",
        ),
        (
            lambda one: one["devices"]["results"][0].update(adminAccess=True),
            "other field of a result",
        ),
        (
            lambda one: one["devices"].update(config=[{"source": "FromClaim"}]),
            "other config",
        ),
        (
            lambda one: one.update(nodeSelector={"nodeSelectorTerms": [{"matchFields": [1]}]}),
            "other node selector",
        ),
    ],
)
def test_each_part_of_an_allocation_is_compared(differences, change, kind):
    theirs = next(
        line["expect"]["allocations"]
        for line in FITTING
        if len(line["expect"]["allocations"]) == 1
        and "adminAccess" not in line["expect"]["allocations"][0]["devices"]["results"][0]
    )
    ours = copy.deepcopy(theirs)
    assert differences.kind_of(answer(theirs), answer(ours)) == ""
    change(ours[0])
    assert differences.kind_of(answer(theirs), answer(ours)) == kind


def test_fitting_failing_and_not_fitting_differ(differences):
    fits = answer([{"devices": {"results": []}}])
    assert differences.kind_of(fits, answer()) == "fit or not"
    assert differences.kind_of(answer(), answer(error="boom")) == "error or not"
    assert differences.kind_of(answer(error="one text"), answer(error="another")) == ""


def test_share_ids_and_the_way_an_amount_is_written_make_no_difference(differences):
    def shared(identity, amount):
        result = {"request": "r", "driver": "d", "pool": "p", "device": "x", "shareID": identity}
        return answer([{"devices": {"results": [result | {"consumedCapacity": {"m": amount}}]}}])

    assert differences.kind_of(shared("a", "1Gi"), shared("b", "1024Mi")) == ""
    assert differences.kind_of(shared("a", "1Gi"), shared(None, "1Gi")) == "other field of a result"


def settled(module, minor, ours, seen):
    differences = module("allocation.differences")
    line = FITTING[0]
    case = module("allocation.cases").Case(line["id"], line | {"k8s": minor})
    found = differences.compare([case], {case.id: seen[0]}, {case.id: ours})
    return differences.settled(found, {case.id: {**seen[0], "observed": seen}})


def test_an_answer_that_kubernetes_was_seen_to_give_is_not_a_difference(module):
    ours = answer(FITTING[0]["expect"]["allocations"])
    assert settled(module, "1.36", ours, [answer(), answer(error="e")]).differences
    assert not settled(module, "1.36", ours, [answer(), ours]).differences


def test_where_pools_have_no_order_any_valid_answer_will_do(module):
    ours = answer(FITTING[0]["expect"]["allocations"])
    other = copy.deepcopy(ours)
    other["allocations"][0]["devices"]["results"][0]["device"] = "another"
    assert settled(module, "1.35", ours, [other]).loose == 1
    assert settled(module, "1.36", ours, [other]).differences
    wrong = settled(module, "1.35", other, [ours]).differences
    assert [one.kind for one in wrong] == ["invalid result"]


TIMED_OUT = {"allocations": None, "error": "context deadline exceeded", "scope": "timeout"}


@pytest.mark.parametrize("minor", ["1.35", "1.36"])
@pytest.mark.parametrize("ours", [answer(), answer(error="boom")], ids=["no fit", "error"])
def test_what_kubernetes_does_not_decide_in_time_is_not_a_verdict(module, minor, ours):
    found = settled(module, minor, ours, [TIMED_OUT])
    assert found.differences == ()
    assert found.undecided == 1
    assert found.outcomes == {"not decided": 1}


def test_what_kubernetes_decides_when_given_more_time_counts(module):
    ours = answer()
    for seen, kinds in ([answer(), TIMED_OUT], []), ([TIMED_OUT, answer(error="e")], [True]):
        line = FITTING[0] | {"k8s": "1.35"}
        case = module("allocation.cases").Case(line["id"], line)
        differences = module("allocation.differences")
        found = differences.compare([case], {case.id: TIMED_OUT}, {case.id: ours})
        found = differences.settled(found, {case.id: {**TIMED_OUT, "observed": seen}})
        assert found.undecided == 0
        assert [one.kind == "error or not" for one in found.differences] == kinds
        assert sum(found.outcomes.values()) == 1


def test_the_report_counts_what_is_not_decided_apart(module):
    report = module("allocation.report")
    found = settled(module, "1.35", answer(), [TIMED_OUT])
    shares = module("allocation.shares").Shares({}, 1)
    run = report.Run("1.35", 1, 1, 2.0)
    text = report.as_text(found, shares, run)
    assert "1 not decided: Kubernetes ran out of the oracle's time" in text
    assert text.endswith("1 cases in 2 s: 0 agree, 0 differences")
    assert report.as_json(found, shares, run)["undecided"] == 1


def test_a_difference_is_made_small(module, monkeypatch, asked):
    """Here the programs differ as long as a slice has a device with two attributes."""
    minimise = module("allocation.minimise")

    def ask(_, questions, progress):
        theirs = {one["id"]: answer() for one in questions}
        ours = {one["id"]: answer(error="wrong" if differs(one) else None) for one in questions}
        return theirs, ours

    def differs(question):
        devices = [
            device for one in question["slices"] for device in one["spec"].get("devices", [])
        ]
        return any(len(device.get("attributes", {})) > 1 for device in devices)

    monkeypatch.setattr(minimise, "ask_both", ask)
    cases = [case for case in asked[:2] if differs(case.question)]
    programs = module("running").Programs(("theirs",), ("ours",))
    found = module("allocation.differences").compare(
        cases, *ask(None, [case.question for case in cases], None)
    )
    for small in minimise.minimised(found.differences, programs, 5):
        question = small.case.question
        assert [len(one["spec"]["devices"]) for one in question["slices"]] == [1]
        assert question["classes"] == question["allocated"] == []
        assert len(json.dumps(question)) < 1200
