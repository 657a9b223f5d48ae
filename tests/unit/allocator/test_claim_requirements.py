"""What claims say is worked out once, and again when what they name is another thing."""

from msgspec.structs import replace

from dray.api import names
from dray.api.devices import DeviceClass, OpaqueConfig
from dray.api.placement import placement_of
from dray.api.pods import PodNeeds, Policy
from dray.messages.facts import DeviceClassObserved, PolicyObserved, PoolObserved
from dray_allocator.placement.pod_request import PodPatterns, PodRequest, wanted
from dray_allocator.scoring.policies import scoring_of

FALSE = 'device.driver == "nobody.example.com"'


def requirements_of(world, uid, spec=None, **about):
    world.submit(world.a_pod(uid, **about), spec or world.ask())
    return wanted(world.state, "pool", world.state.facts.pods[uid])


def waiting(make_world):
    """Without nodes everything waits, so that it can be asked for again."""
    return make_world().open()


def test_pods_that_ask_for_the_same_share_all_but_whose_it_is(make_world):
    world = waiting(make_world)
    one, other = requirements_of(world, "a"), requirements_of(world, "b")
    assert one.pattern.signature is other.pattern.signature
    assert one.pattern.asks is other.pattern.asks
    assert [one.pod.uid, other.pod.uid] == ["a", "b"]
    assert one.claims[0].uid != other.claims[0].uid


def test_needs_that_differ_in_more_than_amounts_have_signatures_of_their_own(make_world):
    world = waiting(make_world)
    plain = requirements_of(world, "a", needs=PodNeeds(cpu_milli=5))
    picky = requirements_of(world, "b", needs=PodNeeds(cpu_milli=5, node_selector={"zone": "a"}))
    again = requirements_of(world, "c", needs=PodNeeds(cpu_milli=5))
    assert plain.pattern.signature == again.pattern.signature != picky.pattern.signature
    assert plain.pattern.devices_signature == picky.pattern.devices_signature


def test_a_policy_that_changes_changes_where_pods_like_before_are_placed(make_world):
    world = waiting(make_world)
    before = requirements_of(world, "a")
    pool = replace(world.state.facts.pools["pool"], template="spread")
    spread = Policy("spread", "u", placement=names.LOW_LOAD_FIRST, version=2)
    world.see(PolicyObserved(revision=world.next(), policy=spread))
    world.see(PoolObserved(revision=world.next(), pool=pool))
    after = requirements_of(world, "b")
    assert before.pattern.placement != after.pattern.placement == placement_of(names.LOW_LOAD_FIRST)
    assert after.pattern.scoring == scoring_of(after.pattern.placement)


def test_equal_requests_of_two_claims_are_distinguished(make_world):
    world = waiting(make_world)
    claims = [world.a_claim(f"p{number}", world.ask()) for number in range(2)]
    patterns, facts = PodPatterns(), world.state.facts
    for claim in claims:
        world.claim(claim)
    pod = world.a_pod("p")
    both = patterns.of(facts, world.state.published, "pool", pod, claims)
    assert [ask.claim for ask in both.asks] == [0, 1]
    assert both.asks[0].amounts is both.asks[1].amounts
    again = patterns.of(facts, world.state.published, "pool", pod, claims)
    assert again is both


def test_a_class_that_changes_changes_what_a_claim_asks_for(make_world):
    world = waiting(make_world)
    assert FALSE not in requirements_of(world, "a").pattern.asks[0].selectors
    named = DeviceClass(names.DEVICE_CLASS, selectors=(FALSE,))
    world.see(DeviceClassObserved(revision=world.next(), device_class=named))
    assert FALSE in requirements_of(world, "b").pattern.asks[0].selectors
    world.see(DeviceClassObserved(revision=world.next(), device_class=named, deleted=True))
    refused = requirements_of(world, "c")
    assert not isinstance(refused, PodRequest)
    assert [one.what for one in refused] == [f"DeviceClass {names.DEVICE_CLASS} does not exist"]


def test_what_a_claim_says_in_its_configuration_is_its_own(make_world):
    world = waiting(make_world)
    spec = world.ask()
    limits = {"kind": names.LIMITS_KIND, names.PREFER_FIELD: "tflops desc"}
    choosy = replace(spec, config=(OpaqueConfig(names.DRIVER, limits),))
    plain, prefers = requirements_of(world, "a", spec), requirements_of(world, "b", choosy)
    assert plain.pattern.devices_signature == prefers.pattern.devices_signature
    assert not plain.pattern.prefers
    assert prefers.pattern.prefers
