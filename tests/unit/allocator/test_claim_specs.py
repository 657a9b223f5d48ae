"""What claims ask for is kept once; what they ask differently is not mixed up."""

from msgspec.structs import replace

from dray.api.devices import OpaqueConfig
from dray.messages.base import decode, encode
from dray.messages.facts import ClaimObserved
from dray_allocator.state.facts import ClaimSpecInterner, Facts


def observed(make, uid, revision=1, **asked):
    """A claim's fact as it comes from the bus: an object of its own."""
    fact = ClaimObserved(revision=revision, claim=make.a_claim(uid, make.ask(**asked), "pool"))
    return decode(encode(fact, source="/c").payload, ClaimObserved)


def test_claims_that_ask_for_the_same_hold_one_spec(make_world):
    facts = Facts()
    for uid in ("a", "b"):
        facts.put_claim(observed(make_world, uid))
    first, second = facts.claims.values()
    assert first.spec is second.spec
    assert first == observed(make_world, "a").claim
    assert second == observed(make_world, "b").claim


def test_a_claim_that_is_observed_again_says_what_is_new_of_it(make_world):
    facts = Facts()
    facts.put_claim(observed(make_world, "a"))
    again = observed(make_world, "a", revision=2)
    again = replace(again, claim=replace(again.claim, void=3))
    facts.put_claim(again)
    assert list(facts.claims.values()) == [again.claim]


def test_a_claim_of_which_more_is_read_than_before_is_another_one(make_world):
    facts = Facts()
    facts.put_claim(observed(make_world, "a", vram="1Gi"))
    before = facts.signatures["claim-a"]
    facts.put_claim(observed(make_world, "a", revision=2, vram="2Gi"))
    read = facts.signatures["claim-a"]
    facts.put_claim(observed(make_world, "b", vram="2Gi"))
    assert before != read == facts.signatures["claim-b"]


def test_specs_that_differ_only_outside_their_requests_stay_apart(make_world):
    specs, one = ClaimSpecInterner(), observed(make_world, "a").claim
    other = replace(one, spec=replace(one.spec, unsupported=("something",)))
    assert specs.intern(one)[0] == one.spec
    assert specs.intern(other)[0] == other.spec
    assert specs.intern(one)[0] == one.spec


def test_what_a_claim_configures_is_its_own_down_to_the_types(make_world):
    facts, values = Facts(), (True, 1, 1.0)
    for uid, value in zip("abc", values, strict=True):
        fact = observed(make_world, uid)
        config = (OpaqueConfig("other.example.com", {"on": value}),)
        spec = replace(fact.claim.spec, config=config)
        facts.put_claim(replace(fact, claim=replace(fact.claim, spec=spec)))
    reasons = [claim.spec.config[0].parameters["on"] for claim in facts.claims.values()]
    assert list(map(repr, reasons)) == list(map(repr, values))
