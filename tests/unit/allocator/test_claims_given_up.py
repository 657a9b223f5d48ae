"""Claims that Kubernetes keeps from being allocated, and claims that are other pods'."""

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation, GivenUp, first_attempt
from dray.api.devices import DeviceId
from dray.api.pods import PodClaim
from dray.messages.facts import ClaimObserved, PodObserved
from dray_allocator.core.handle import reasons

WORDS = "admission webhook policy.example.com denied the request"
ATTEMPT = first_attempt(1)


def give_up(world, pod, void, message=WORDS, revision=1):
    """The claim-controller gives the pod's attempt up; ``void``: nobody can have committed it."""
    known = world.state.facts.claims[f"claim-{pod}"]
    claim = replace(known, void=void, resource_version=revision)
    given_up = GivenUp(ATTEMPT, void, 1, message)
    world.see(ClaimObserved(revision=world.next(), claim=claim, given_up=given_up))


def reasons_of(world, pod):
    """The newest reasons of the pod, in words."""
    return " ".join(map(str, world.waits(pod)[-1].reasons)) if world.waits(pod) else ""


@pytest.fixture
def contended(world):
    """One card, which one pod has and another wants."""
    world.nodes(world.a_node("n1"))
    whole = world.ask("312", "40Gi")
    for uid in ("holder", "other"):
        world.submit(world.a_pod(uid), whole)
    assert list(world.decisions()) == ["holder"]
    return world


def test_devices_that_cannot_have_been_committed_are_free_and_not_decided_again(contended):
    world = contended
    give_up(world, "holder", void=ATTEMPT)
    world.tick()

    assert world.decisions()["other"].node == "n1"
    assert [one.attempt for one in world.decisions()["holder"].claims] == [ATTEMPT]
    assert "claim ns/holder-gpu can't be allocated" in reasons_of(world, "holder")
    assert WORDS in reasons_of(world, "holder")
    assert world.state.device_usage.of_claim("claim-holder") == ()


def test_a_claim_is_decided_about_again_once_it_was_changed(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))
    give_up(world, "p", void=ATTEMPT)
    for _ in range(5):
        world.tick(60)
    assert world.decisions()["p"].claims[0].attempt == ATTEMPT

    give_up(world, "p", void=ATTEMPT, message="", revision=2)
    world.tick(120)
    assert world.decisions()["p"].claims[0].attempt == ATTEMPT + 1


def test_devices_that_may_still_be_committed_are_kept_and_the_reason_names_the_claim(contended):
    world = contended
    world.clear("claim-holder", decision=ATTEMPT)
    give_up(world, "holder", void=0)
    for _ in range(5):
        world.tick(60)

    assert "other" not in world.decisions()
    assert "held for claim ns/holder-gpu: 1 of 1 device" in reasons_of(world, "other")
    assert WORDS in reasons_of(world, "other")
    assert reasons_of(world, "other") == " ".join(map(str, reasons(world.state, "other")))

    give_up(world, "holder", void=ATTEMPT, message="", revision=2)
    world.tick()
    assert world.released()[-1][:2] == ("claim-holder", "voided")
    assert world.decisions()["holder"].claims[0].attempt == ATTEMPT + 1


def test_the_reason_ends_once_the_claim_can_be_written(contended):
    world = contended
    give_up(world, "holder", void=0)
    world.tick(60)
    assert "held for claim" in reasons_of(world, "other")
    give_up(world, "holder", void=0, message="", revision=2)
    world.tick(60)
    assert "held for claim" not in reasons_of(world, "other")


def shared_claim(world, *users, pods=("first", "second"), **changes):
    """A claim that somebody wrote, allocated for its users, and pods that refer to it."""
    taken = AllocatedDevice(names.GPU_REQUEST, DeviceId(names.DRIVER, "n1", "n1-gpu0"))
    claim = replace(world.a_claim("", world.ask()), uid="shared", name="shared", pod_name="")
    world.claim(replace(claim, allocation=Allocation((taken,), "n1"), reserved_for=users))
    reference = PodClaim(names.CLAIM_REFERENCE, "shared")
    for uid in pods:
        one = replace(world.a_pod(uid, **changes), claims=(reference,))
        world.see(PodObserved(revision=world.next(), pod=one))


def test_a_pod_whose_claim_is_allocated_for_another_has_that_reason(world):
    world.nodes(world.a_node("n1"))
    shared_claim(world, "first")

    assert not world.waits("first")
    assert "claim shared is allocated for another pod" in reasons_of(world, "second")
    assert "it is for ns/first, and dray binds one pod per claim" in reasons_of(world, "second")
    assert not world.decisions()


def test_kube_scheduler_reserves_a_claim_for_each_of_its_pods(world):
    world.nodes(world.a_node("n1"))
    shared_claim(world, "first", scheduler="default-scheduler", gated=True)

    assert not world.waits("second")


def test_a_pod_is_not_decided_about_while_one_of_its_claims_is_anothers(world):
    """It could not be bound by what it gets."""
    world.nodes(world.a_node("n1"))
    shared_claim(world, "first", pods=("first",))
    world.claim(world.a_claim("mixed", world.ask("1", "1Gi")))
    references = (PodClaim(names.CLAIM_REFERENCE, "mixed-gpu"), PodClaim("more", "shared"))
    mixed = replace(world.a_pod("mixed"), claims=references)
    world.see(PodObserved(revision=world.next(), pod=mixed))

    assert "mixed" not in world.decisions()
    assert "claim shared is allocated for another pod" in reasons_of(world, "mixed")
