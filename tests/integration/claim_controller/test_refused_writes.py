"""Objects that Kubernetes does not let dray write, whatever it answers: they delay nobody else."""

from collections.abc import Callable
from unittest import mock

import pytest
from tests.integration.claim_controller.kubernetes import POOL
from tests.integration.claim_controller.virtual import VirtualWorld, in_virtual_time

from dray.api.names import CLAIM_REFERENCE as REFERENCE
from dray.api.names import DECISION
from dray.kube.convert import claim_from
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import (
    CLAIMS,
    PODS,
    POOLS,
    AlreadyExistsError,
    ConflictError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_claim_controller.pools.decisions.usage import HELD_FOR_S

ANSWERS: dict[str, Callable[[], KubeError]] = {
    "403": lambda: RefusedError("admission webhook policy.example.com denied the request", 403),
    "404": lambda: NotFoundError("the webhook answers 404"),
    "409": lambda: ConflictError("the webhook answers 409"),
    "409 exists": lambda: AlreadyExistsError("the webhook answers 409 AlreadyExists"),
    "422": lambda: RefusedError("metadata.annotations: Too long: may not be more than 262144", 422),
    "429": lambda: KubeUnavailableError("too many requests", 20.0),
    "500": lambda: KubeUnavailableError("etcdserver: request is too large"),
}
answers = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
DELAYS_S = pytest.mark.parametrize("delay_s", [0.0, 30.0], ids=["at once", "after 30 s"])


async def refused_pods(
    world: VirtualWorld, count: int, answer: KubeError, *, delay_s: float = 0.0
) -> list[str]:
    """Pods of one team whose claims can't be written; their names."""
    team = await world.namespace("broken")
    world.kube.refuse(InjectedRefusal(answer, "patch", CLAIMS, team, delay_s=delay_s))
    names = [f"broken-{number}" for number in range(count)]
    for name in names:
        await world.pod(name, shape=world.shape("1", "1Gi"), namespace=team)
    for name in names:
        await world.claim_of(name, team)
    return names


@answers
@DELAYS_S
def test_claims_that_cannot_be_written_do_not_keep_others_from_being_bound(
    answer: Callable[[], KubeError], delay_s: float
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        for number in range(2, 9):
            await world.node(f"node-{number}", POOL)
        world.allocate()
        names = await refused_pods(world, 40, answer(), delay_s=delay_s)
        await world.until(lambda: len(world.reservations()) == len(names), "all are decided")
        # Each second of the time in which the others are tried, and given up, and tried again.
        for number in range(12):
            await world.pod(f"honest-{number}", shape=world.shape("10", "1Gi"))
            await world.bound(f"honest-{number}", within_s=5)
            await world.clock.sleep(10)
        for name in names:
            await world.until(lambda name=name: is_reported(world, name, answer()), name, 600)

    in_virtual_time(scenario)


def is_reported(world: VirtualWorld, pod: str, answer: KubeError) -> bool:
    """Whether BindRequest and events have Kubernetes' answer, if it came in time."""
    words = (str(answer), "requested timeout")
    explained = world.bind_request(pod, "broken").get("explanation") or ""
    reported = (explained, *world.events(pod).values())
    return any(one in explained for one in words) and any(
        one in text for one in words for text in reported[1:]
    )


def test_an_attempt_that_is_refused_is_given_up_at_once() -> None:
    """A refusal is not tried for as long as a server that fails."""

    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        answer = ANSWERS["403"]()
        (name,) = await refused_pods(world, 1, answer)
        await world.until(lambda: is_reported(world, name, answer), "the reason", 5)

    in_virtual_time(scenario)


def test_a_claim_that_cannot_be_written_does_not_hold_its_pool() -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        await refused_pods(world, 1, ANSWERS["500"]())
        await world.until(world.reservations, "the pod is decided")
        await world.kube.delete(POOLS, POOL)
        await world.until(
            lambda: ("", POOL) not in world.kube.store.of(POOLS), "no pool", HELD_FOR_S + 10
        )

    in_virtual_time(scenario)


def test_what_rests_until_its_next_try_holds_no_slot_of_its_namespace() -> None:
    async def scenario(world: VirtualWorld) -> None:
        for number in range(2, 9):
            await world.node(f"node-{number}", POOL)
        world.allocate()
        team = await world.namespace("team")
        for number in range(40):
            name = f"broken-{number}"
            world.kube.refuse(
                InjectedRefusal(NO_ANSWER, "patch", CLAIMS, name=f"{name}-{REFERENCE}")
            )
            await world.pod(name, shape=world.shape("1", "1Gi"), namespace=team)
        await world.until(lambda: len(world.reservations()) == 40, "all are decided")
        for number in range(5):
            name = f"honest-{number}"
            await world.pod(name, shape=world.shape("10", "1Gi"), namespace=team)
            await world.until(lambda name=name: node_of(world, name, team), name, 2)
            await world.clock.sleep(1)

    in_virtual_time(scenario)


NO_ANSWER = KubeUnavailableError("no answer from kube-apiserver")


def test_pods_whose_claims_cannot_be_allocated_because_the_server_hangs_have_a_reason() -> None:
    """They wait for one another's time-outs, so that each has been decided about again before it
    was given up."""

    async def scenario(world: VirtualWorld) -> None:
        for number in range(2, 9):
            await world.node(f"node-{number}", POOL)
        world.allocate()
        team = await world.namespace("broken")
        world.kube.refuse(
            InjectedRefusal(NO_ANSWER, "patch", CLAIMS, team, subresource="status", delay_s=30.0)
        )
        names = [f"broken-{number}" for number in range(40)]
        for name in names:
            await world.pod(name, shape=world.shape("1", "1Gi"), namespace=team)
        for name in names:
            await world.until(lambda name=name: is_explained(world, name), name, 300)

    in_virtual_time(scenario)


@pytest.mark.parametrize("delay_s", [0.0, 30.0], ids=["at once", "after 30 s"])
def test_a_pod_whose_claim_is_unreadable_after_a_failed_write_has_a_reason(
    delay_s: float,
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        world.allocate()
        team = await world.namespace("broken")
        for verb in ("get", "patch"):
            world.kube.refuse(InjectedRefusal(NO_ANSWER, verb, CLAIMS, team, delay_s=delay_s))
        await world.pod("broken", shape=world.shape("1", "1Gi"), namespace=team)
        await world.until(lambda: is_explained(world, "broken"), "the reason", 150)

    in_virtual_time(scenario)


def is_explained(world: VirtualWorld, pod: str) -> bool:
    """Whether the BindRequest or an event says that Kubernetes gave no answer."""
    texts = [world.bind_request(pod, "broken").get("explanation") or ""]
    texts += world.events(pod).values()
    return any(one in text for one in (str(NO_ANSWER), "requested timeout") for text in texts)


MOST_WRITES = 200
"""On one claim, within some minutes."""


@pytest.mark.parametrize("lost", ["mark", "finalizer", "allocation"])
def test_writes_that_the_server_drops_have_a_backoff_and_the_pod_has_a_reason(lost: str) -> None:
    """So does a mutating webhook that removes what it does not know."""

    async def scenario(world: VirtualWorld) -> None:
        team, writes, real = await world.namespace("broken"), 0, MemoryStore.write

        def write(
            store: MemoryStore, resource: Resource, old: Object, new: Object, subresource: str
        ) -> Object:
            nonlocal writes
            metadata = new["metadata"]
            if resource is CLAIMS and metadata["namespace"] == team:
                writes += 1
                match lost if writes < MOST_WRITES else "nothing":
                    case "mark":
                        metadata["annotations"].pop(DECISION, None)
                    case "finalizer":
                        metadata["finalizers"] = []
                    case "allocation":
                        new = {**new, "status": {}}
            return real(store, resource, old, new, subresource)

        with mock.patch.object(MemoryStore, "write", write):
            world.allocate()
            await world.pod("broken", shape=world.shape("1", "1Gi"), namespace=team)
            await world.until(
                lambda: "does not keep" in str(world.events("broken").values()), "the reason", 150
            )
            await world.pod("honest", shape=world.shape("10", "1Gi"))
            await world.bound("honest", within_s=5)
        assert writes < MOST_WRITES
        await world.until(lambda: node_of(world, "broken", team), "it is tried again", 400)

    in_virtual_time(scenario)


WHOLE = ("312", "4Gi")
"""A card."""


@answers
def test_devices_of_a_claim_that_cannot_be_written_go_to_others(
    answer: Callable[[], KubeError],
) -> None:
    """Nobody can have committed it: it carries no mark. It is decided about again, once it can be
    written."""

    async def scenario(world: VirtualWorld) -> None:
        permit = world.kube.refuse(
            InjectedRefusal(answer(), "patch", CLAIMS, name="thief-1-" + REFERENCE)
        )
        world.kube.refuse(InjectedRefusal(answer(), "patch", CLAIMS, name="thief-2-" + REFERENCE))
        world.allocate()
        for name in ("thief-1", "thief-2"):
            await world.pod(name, shape=world.shape(*WHOLE))
            await world.claim_of(name)
        await world.until(lambda: len(world.reservations()) == 2, "both cards are reserved")
        await world.pod("honest", shape=world.shape(*WHOLE))

        await world.bound("honest", within_s=240)
        for thief in ("thief-1", "thief-2"):
            await world.until(
                lambda name=thief: (
                    str(answer()) in world.events(name).get("ClaimNotWritten", "")
                    and str(answer()) in in_words(world, name)
                ),
                "the reason",
                60,
            )
            assert not claim_from(await world.claim(thief)).void

        permit()
        await world.bound("thief-1", within_s=400)
        claim = claim_from(await world.claim("thief-1"))
        assert claim.decision > claim.void > 0
        dead = await world.bus.state("DRAY_DEAD")
        assert dead is None or not dead.last_sequence

    in_virtual_time(scenario)


def in_words(world: VirtualWorld, pod: str) -> str:
    """Why the pod waits, by its BindRequest."""
    status = world.bind_request(pod)
    return status["explanation"] if status.get("reason") == "Waiting" else ""


@pytest.mark.parametrize("restarts", [False, True], ids=["one term", "another term"])
def test_devices_of_a_claim_that_may_still_be_committed_are_kept(restarts: bool) -> None:
    """It carries the mark. Pods that wait for its devices have its name as reason; it is carried
    out by nobody, also after a restart."""

    async def scenario(world: VirtualWorld) -> None:
        claim = f"holder-{REFERENCE}"
        refused = RefusedError("policy.example.com denied the request", 403)
        status = InjectedRefusal(
            refused, "patch", CLAIMS, name=claim, subresource="status", delay_s=5.0
        )
        world.kube.refuse(status)
        world.allocate()
        await world.pod("holder", shape=world.shape("312", "4Gi"))
        await world.claim_of("holder")
        permit: list[Callable[[], None]] = []

        async def marked() -> bool:
            return claim_from(await world.claim("holder")).decision > 0

        await world.until(marked, "it is marked")
        permit.append(world.kube.refuse(InjectedRefusal(refused, "patch", CLAIMS, name=claim)))
        for number in (1, 2):
            await world.pod(f"other-{number}", shape=world.shape(*WHOLE))
        await world.until(lambda: sum(map(bool, nodes(world))) == 1, "one card is left", 60)
        report_wait = next(name for name in ("other-1", "other-2") if not node_of(world, name))
        await world.until(
            lambda: f"held for claim default/{claim}" in in_words(world, report_wait), "whose", 60
        )
        assert str(refused) in in_words(world, report_wait)
        if restarts:
            await world.running[0].stop()
            await world.ready(await world.start("two"))
        await world.clock.sleep(900)
        assert not node_of(world, report_wait)
        assert claim_from(await world.claim("holder")).allocation is None

        # Somebody else changes the claim: nothing that was sent before can be stored any more.
        permit.pop()()
        await world.kube.patch(CLAIMS, claim, {"metadata": {"labels": {"a": "b"}}}, "default")
        await world.bound(report_wait, within_s=60)

    in_virtual_time(scenario)


def node_of(world: VirtualWorld, pod: str, namespace: str = "default") -> str:
    """Where the pod is bound; empty: nowhere."""
    node: str = world.kube.store.get(PODS, pod, namespace)["spec"].get("nodeName") or ""
    return node


def nodes(world: VirtualWorld) -> list[str]:
    """Where all pods are."""
    return [node_of(world, name) for name in world.names(PODS)]
