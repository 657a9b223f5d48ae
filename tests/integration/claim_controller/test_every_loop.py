"""No answer of Kubernetes ends a loop of the claim-controller, or keeps it from other objects.

``CALLS`` names every loop and every call that it makes. Each call is answered with every error:
once, about some objects for ever, and about all objects for a while. No loop ends, and whatever
concerns other objects is done. A new loop, or a new call of one, is to be added here.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any
from unittest import mock

import pytest
from msgspec.json import encode as encode_json
from tests.integration.claim_controller.test_refused_writes import ANSWERS
from tests.integration.claim_controller.virtual import VirtualWorld
from tests.virtual_time import LoopClock, run_virtually

from dray.api.claims import last_attempt_before
from dray.api.names import (
    ALLOCATED,
    DEDICATED_TAINT,
    GANG_ENABLED,
    OWNER_KUBE_SCHEDULER,
    VOID,
    VOLCANO_SCHEDULER,
)
from dray.kube.convert_metadata import attempt_annotation
from dray.kube.memory import MemoryKube
from dray.kube.memory_refusals import InjectedRefusal, KubeCall
from dray.kube.ports import (
    CLAIMS,
    EVENTS,
    JOBS,
    LEASES,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    POOLS,
    TEMPLATES,
    KubeError,
    NotFoundError,
)
from dray.messages.base import encode
from dray.messages.commands import VoidClaim
from dray.messages.rpc import DERIVE_SUBJECT, LOOKUP_SUBJECT, Derive, Lookup
from dray_claim_controller.cache.resources import OPTIONAL, WATCHED
from dray_claim_controller.settings import (
    ExecutionSettings,
    GroupSettings,
    Owner,
    Probing,
    Templates,
)
from dray_claim_controller.term import LeaderTerm

Call = tuple[str, str, str]
"""Method of ``Kube``, plural, subresource."""
PROCESS = ("watch", "stand", "look-up", "derive", "readings", "journal")
"""The loops of a process, but for ``identities``: tests/unit/claim_controller/test_identities.py
has its one call fail."""
TERM = (
    *("publish", "tick", "guard", "logs", "trim", "commands", "voids", "templates", "collect"),
    *("stuck", "pools", "owners", "abilities", "reports", "streams", "inventories", "prepare"),
    *("groups", "accounting"),
)
"""The loops of a term."""
ANY = "of any kind"
CALLS: dict[str, set[Call]] = {
    "watch": {("watch", ANY, ""), *(("list", plural, "") for plural in OPTIONAL)},
    "stand": {("get", "leases", ""), ("create", "leases", ""), ("update", "leases", "")},
    "look-up": {("get", "gpupools", "")},
    "derive": {("create", "resourceclaimtemplates", "")},
    "pools": {
        ("patch", "nodes", ""),
        ("patch", "gpupools", "status"),
        ("patch", "gpupools", ""),
    },
    "owners": {("patch", "pods", "")},
    "groups": {
        ("patch", "podgroups", ""),
        ("patch", "podgroups.scheduling.k8s.io", "status"),
        ("create", "podgroups", ""),
        ("create", "queues", ""),
        ("patch", "queues", "status"),
        ("get", "jobs", ""),
        ("patch", "pods", ""),
        ("get", "pods", ""),
        ("evict", "pods", "eviction"),
        ("version", "pods", ""),
    },
    "abilities": {
        ("version", "pods", ""),
        ("create", "resourceclaims", ""),
        ("create", "resourceslices", ""),
    },
    # One task per object, for loops that make no call themselves.
    "log": {
        ("get", "gpupools", ""),
        ("list", "resourceclaims", ""),
        ("patch", "gpupools", ""),
        ("patch", "gpupools", "status"),
    },
    "close": {("list", "resourceclaims", "")},
    "void-epoch": {
        ("patch", "resourceclaims", ""),
        ("get", "resourceclaims", ""),
        ("version", "pods", ""),
    },
    "execute": {
        ("patch", "resourceclaims", ""),
        ("patch", "resourceclaims", "status"),
        ("patch", "pods", ""),
        ("bind", "pods", "binding"),
        ("get", "resourceclaims", ""),
        ("get", "pods", ""),
        ("version", "pods", ""),
    },
    "void": {
        ("get", "resourceclaims", ""),
        ("patch", "resourceclaims", ""),
        ("version", "pods", ""),
    },
    "given-up": {("get", "resourceclaims", ""), ("patch", "resourceclaims", "")},
    "templates": {
        ("create", "resourceclaimtemplates", ""),
        ("get", "resourceclaimtemplates", ""),
    },
    "accounting-claims": {("create", "resourceclaims", ""), ("get", "resourceclaims", "")},
    "touch": {("patch", "pods", "")},
    "prepare-again": {("patch", "pods", "")},
    "unused-templates": {("delete", "resourceclaimtemplates", "")},
    "stuck": {
        ("patch", "resourceclaims", ""),
        ("patch", "resourceclaims", "status"),
        ("get", "resourceclaims", ""),
    },
    "report": {
        ("create", "bindrequests", ""),
        ("patch", "bindrequests", ""),
        ("patch", "bindrequests", "status"),
        ("create", "events", ""),
        ("get", "events", ""),
        ("patch", "events", ""),
        ("patch", "resourceclaims", ""),
    },
}
UNTIL_SUCCESS: set[Call] = {("create", "leases", ""), ("list", NATIVE_POD_GROUPS.plural, "")}
"""What a controller calls when it starts, until it succeeds: fails from then on, every time."""
RARE: set[Call] = {("evict", "pods", "eviction"), ("patch", "queues", "status")}
"""Calls that are made fewer times than there are errors."""
NOT_AGAIN: set[Call] = {
    ("create", "queues", ""),
    ("get", "pods", ""),
    *(("list", plural, "") for plural in OPTIONAL if plural != NATIVE_POD_GROUPS.plural),
}
"""Calls that are not made once the controller leads: these cases only show that all loops run."""
CAUSES: dict[Call, tuple[Call, str]] = {
    ("get", TEMPLATES.plural, ""): (("create", TEMPLATES.plural, ""), "409 exists"),
}
"""Calls that are made only after another one was answered so."""
LOOP: ContextVar[str] = ContextVar("loop", default="")
"""Of a process or term, to which a task belongs that has no name of its own."""


class Client(MemoryKube):
    """The controller's own, which notes who calls what."""

    def __init__(self, kube: MemoryKube, made: dict[str, set[Call]]) -> None:
        super().__init__(kube.store)
        self.made = made
        self.failing: Call = ("", "", "")
        self.failures: list[KubeError] = []
        """What that call is answered with, every second time, once each."""
        self.calls = 0
        self.causes = 0
        self.refusals: list[InjectedRefusal] = []

    async def _enter(self, request: KubeCall) -> None:
        plural = ANY if request.method == "watch" else request.resource.plural
        call = (request.method, plural, request.subresource)
        self.made.setdefault(caller(), set()).add(call)
        if call == self.failing and self.failures:
            self.calls += 1
            if self.calls % 2 or call in UNTIL_SUCCESS:
                raise self.failures.pop(0)
        cause, answer = CAUSES.get(self.failing, (None, ""))
        if call == cause and self.failures:
            self.causes += 1
            if self.causes % 2:
                raise ANSWERS[answer]()
        for refusal in self.refusals:
            if refusal.meets(request):
                raise refusal.error.with_traceback(None)
        await super()._enter(request)


def caller() -> str:
    """The loop that the running task belongs to, or what it does for one."""
    task = asyncio.current_task()
    assert task is not None
    name = task.get_name().partition(" ")[0]
    for prefix in ("execute-", "log-", "watch-"):
        if name.startswith(prefix):
            return prefix.removesuffix("-")
    return "stand" if name == "renew-lease" else name if name in CALLS else LOOP.get()


@contextlib.contextmanager
def named_loops(found: set[str]) -> Iterator[None]:
    """Has every loop of a term say its name; adds their names to ``found``."""
    real = LeaderTerm._loops

    def loops(self: LeaderTerm, created: str) -> dict[str, Awaitable[None]]:
        made = real(self, created)
        found.update(made)
        return {name: _named(name, loop) for name, loop in made.items()}

    with mock.patch.object(LeaderTerm, "_loops", loops):
        yield


async def _named(name: str, loop: Awaitable[None]) -> None:
    LOOP.set(name)
    await loop


class Everything(VirtualWorld):
    """A world in which every loop has something to do."""

    def __init__(self, clock: LoopClock, made: dict[str, set[Call]]) -> None:
        super().__init__(clock)
        self.client = Client(self.kube, made)
        self.term: LeaderTerm | None = None

    async def begin(self) -> None:
        """One controller, which leads."""
        await self.base()
        self.make_claims()
        await self.pool("shared")
        for number in range(2, 5):
            await self.node(f"node-{number}", "default-pool", cards=8)
            await self.node(f"shared-{number}", "shared", cards=8)
        running = await self.start(
            kube=self.client,
            templates=Templates(unused_after=1.0, collect_every=0.5),
            execution=ExecutionSettings(
                withdraw_after=1.0, scheduler_backoff=1.0, give_up_after=10.0
            ),
            probing=Probing(look_every=1.0),
            owner=Owner(quarantine=1.0),
            groups=GroupSettings(scheduler_names=(VOLCANO_SCHEDULER,), timeout=2.0, grace=2.0),
        )
        self.allocate()
        await self.ready(running)
        self.term = running.controller.term

    def assert_all_go_on(self) -> None:
        """It is the same term, and no loop has ended."""
        (running,) = self.running
        assert running.controller.term is self.term
        assert not any(task.done() for task in running.tasks)


class Team:
    """Objects that concern every loop, in a namespace and in pools of their own."""

    def __init__(self, world: Everything, name: str) -> None:
        self.world = world
        self.name = name

    async def make(self) -> None:
        """Create all of it, and do what users and other controllers do."""
        world, name = self.world, self.name
        await world.namespace(name)
        for pod, gated in (("bound", False), ("gated", True)):
            pool = "shared" if gated else "default-pool"
            shape = world.shape("2" if gated else "1", "1Gi", pool)
            await world.pod(pod, gated=gated, shape=shape, pool=pool, namespace=name)
        await world.pod_without_claims("plugin", shape=world.shape("1", "1Gi"), namespace=name)
        await world.pool(f"{name}-pool", dedicated=True)
        await world.node(f"{name}-node", f"{name}-pool")
        await world.pool(f"{name}-gone")
        await world.pool(f"{name}-handed")
        handed = world.shape("3", "1Gi", f"{name}-handed")
        await world.pod("handed", gated=True, shape=handed, pool=f"{name}-handed", namespace=name)
        report_wait = world.shape("4", "1Gi", f"{name}-gone")
        await world.pod("waits", shape=report_wait, pool=f"{name}-gone", namespace=name)
        await self.make_groups()
        unused = world.shape("5", "1Gi", f"{name}-gone")
        await world.pod("unused", shape=unused, pool=f"{name}-gone", namespace=name)

    async def make_groups(self) -> None:
        """A Job's, with a pod that has no GPU; one that is to end; one of Kubernetes."""
        world, name = self.world, self.name
        metadata = {"name": "job", "namespace": name}
        job = await world.kube.create(JOBS, {"metadata": metadata, "spec": {}}, name)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "controller": True}
        owner["uid"] = job["metadata"]["uid"]
        await world.rider("of-job", f"podgroup-{owner['uid']}", name)
        asks = {"annotations": {GANG_ENABLED: "true"}, "ownerReferences": [owner]}
        await world.kube.patch(PODS, "of-job", {"metadata": asks}, name)
        for resource, spec in (
            (POD_GROUPS, {"minMember": 1}),
            (NATIVE_POD_GROUPS, {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ):
            metadata = {"name": "ending", "namespace": name}
            await world.kube.create(resource, {"metadata": metadata, "spec": spec}, name)
        shape = world.shape("1", "1Gi", "default-pool")
        await world.pod("ending", shape=shape, namespace=name, group="ending")
        await world.pod("native", shape=shape, namespace=name, native="ending")

    async def end_group(self) -> None:
        """More pods are wanted than there are."""
        await self.world.until(lambda: self.pod("ending")["spec"].get("nodeName"), "it is bound")
        more = {"spec": {"minMember": 3}}
        await self.world.kube.patch(POD_GROUPS, "ending", more, self.name)

    async def go_on(self) -> None:
        """What happens once the objects are known."""
        world, name = self.world, self.name
        with contextlib.suppress(NotFoundError):
            await world.kube.delete(PODS, "unused", name)
        spec = {"spec": {"owner": OWNER_KUBE_SCHEDULER}}
        await world.kube.patch(POOLS, f"{name}-handed", spec)
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        await world.kube.patch(
            PODS, "gated", {"status": {"conditions": [refused]}}, name, subresource="status"
        )
        if (claim := await world.claim("waits", name)) is not None:
            metadata = claim["metadata"]
            command = VoidClaim(
                domain=f"{name}-gone",
                claim_uid=metadata["uid"],
                namespace=name,
                name=metadata["name"],
                attempt=last_attempt_before(1) + 1,
                reason="test",
            )
            await world.bus.publish(encode(command, source="/test"))
            await world.clock.sleep(1)
        await world.kube.delete(POOLS, f"{name}-gone")
        world.client.git_version = name

    async def is_served(self) -> None:
        """Wait until every loop has done its part."""
        world, name = self.world, self.name
        await self.end_group()
        for what, is_so in (
            ("the pod is bound", self.is_bound),
            ("the pod without claims is bound", self.is_bound_without_claims),
            ("the Job's group starts", self.is_ungated),
            ("the group ends", self.is_evicted),
            ("the native group has a condition", self.has_condition),
            ("it is reported", self.is_reported),
            ("what kube-scheduler refused was taken back", self.is_taken_back),
            ("the pod is handed over", self.is_handed_over),
            ("the claim is void", self.is_void),
            ("the template is deleted", self.is_collected),
            ("the pool has a status and its node a taint", self.is_kept),
            ("the pool's domain is closed", self.is_closed),
            ("the server's version is known", self.is_probed),
        ):
            await world.until(is_so, f"{name}: {what}", 700)

    def is_bound(self) -> bool:
        return bool(self.pod("bound")["spec"].get("nodeName"))

    def is_bound_without_claims(self) -> bool:
        return bool(self.pod("plugin")["spec"].get("nodeName"))

    def is_ungated(self) -> bool:
        return not self.pod("of-job")["spec"].get("schedulingGates")

    def is_evicted(self) -> bool:
        return "deletionTimestamp" in self.pod("ending")["metadata"]

    def has_condition(self) -> bool:
        obj = self.world.kube.store.get(NATIVE_POD_GROUPS, "ending", self.name)
        return bool((obj.get("status") or {}).get("conditions"))

    def is_reported(self) -> bool:
        status = self.world.bind_request("bound", self.name)
        claim = self.claim("bound")
        announced = (claim["metadata"].get("annotations") or {}).get(ALLOCATED) == "true"
        return status.get("phase") == "Succeeded" and announced

    def is_taken_back(self) -> bool:
        return self.void("gated") > 0

    def is_handed_over(self) -> bool:
        return not self.pod("handed")["spec"].get("schedulingGates")

    def is_void(self) -> bool:
        return self.void("waits") > 0

    def is_collected(self) -> bool:
        name = self.world.template_of(self.world.shape("5", "1Gi", f"{self.name}-gone"))
        return (self.name, name) not in self.world.kube.store.of(TEMPLATES)

    def is_kept(self) -> bool:
        pool = self.world.kube.store.get(POOLS, f"{self.name}-pool", "")
        node = self.world.kube.store.get(NODES, f"{self.name}-node", "")
        taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
        return (pool.get("status") or {}).get("nodes") == 1 and DEDICATED_TAINT in taints

    async def is_closed(self) -> bool:
        facts = (await self.world.facts()).get("domain", [])
        last = {fact["domain"]: bool(fact.get("deleted")) for fact in facts}
        return last.get(f"{self.name}-gone", True)

    async def is_probed(self) -> bool:
        (fact,) = (await self.world.facts())["cluster"]
        return bool(fact["version"] == self.world.client.git_version)

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.world.kube.store.get(PODS, name, self.name)
        return found

    def claim(self, pod: str) -> dict[str, Any]:
        statuses = self.pod(pod)["status"].get("resourceClaimStatuses") or [{}]
        name = statuses[0].get("resourceClaimName", "")
        return self.world.kube.store.of(CLAIMS).get((self.name, name)) or {"metadata": {}}

    def void(self, pod: str) -> int:
        return attempt_annotation(self.claim(pod), VOID)


def run(
    scenario: Callable[[Everything], Awaitable[None]],
    before: Callable[[Everything], None] | None = None,
) -> tuple[dict[str, set[Call]], set[str]]:
    """Who has called what, and the names of a term's loops; ``before`` the controller starts."""
    made: dict[str, set[Call]] = {}
    loops: set[str] = set()

    async def main(clock: LoopClock) -> None:
        world = Everything(clock, made)
        if before is not None:
            before(world)
        await world.begin()
        try:
            await scenario(world)
        finally:
            await world.close()

    with named_loops(loops):
        run_virtually(main)
    return made, loops


async def serve(world: Everything, *names: str) -> None:
    """Teams by these names come; the first one is served, and all loops go on."""
    teams = [Team(world, name) for name in names]
    for team in reversed(teams):
        await team.make()
    await world.clock.sleep(1)
    for team in reversed(teams):
        await team.go_on()
    await teams[0].is_served()
    world.assert_all_go_on()


def assert_named(made: dict[str, set[Call]], loops: set[str]) -> None:
    """The table above names whatever was called, but for what a term begins with."""
    assert loops == set(TERM)
    for name, calls in made.items():
        assert not name or calls <= CALLS.get(name, set()), f"{name}: {calls}"


def a_derive() -> Derive:
    shape = '{"metadata":{},"spec":{"devices":{}}}'
    digits = hashlib.sha256(shape.encode()).hexdigest()[:10]
    return Derive(namespace="default", template=f"base-{digits}", shape=shape)


def test_all_loops_and_all_their_calls_are_named_above() -> None:
    async def scenario(world: Everything) -> None:
        await serve(world, "team")
        world.kube.expire_watches()
        lookup = encode_json(Lookup(kind="pool", name="shared"))
        await world.bus.request(LOOKUP_SUBJECT, lookup, timeout_s=1)
        derive = encode_json(a_derive())
        await world.bus.request(DERIVE_SUBJECT, derive, timeout_s=1)

    made, loops = run(scenario)
    assert_named(made, loops)
    assert {task.get_name() for task in tasks_of_a_process()} == set(PROCESS)


def tasks_of_a_process() -> list[asyncio.Task[None]]:
    """Tasks of a process that the tests start as ``app`` does."""
    found: list[asyncio.Task[None]] = []

    async def scenario(world: Everything) -> None:
        found.extend(world.running[0].tasks)

    run(scenario)
    return found


def refusals(call: Call, error: KubeError, team: str) -> list[InjectedRefusal]:
    """The call is answered so where it is about the team's objects."""
    method, plural, subresource = call
    resource = RESOURCES.get(plural)
    if resource is None or resource.namespaced:
        return [InjectedRefusal(error, method, resource, team, subresource=subresource)]
    names = [f"{team}-{what}" for what in ("pool", "gone", "handed", "node")]
    return [
        InjectedRefusal(error, method, resource, name=one, subresource=subresource) for one in names
    ]


ERRORS = [ANSWERS[name]() for name in ("403", "404", "409", "409 exists", "429", "500")]
ALL_CALLS = sorted({call for calls in CALLS.values() for call in calls})
RESOURCES = {resource.plural: resource for resource in (*WATCHED, LEASES, EVENTS, JOBS)}


@pytest.mark.parametrize("call", ALL_CALLS, ids=" ".join)
def test_no_answer_ends_a_loop_or_keeps_it_from_other_objects(call: Call) -> None:
    method, plural, subresource = call
    resource = RESOURCES.get(plural)
    pause_s = 0.8 if resource is LEASES else 1.5
    """For longer than ten seconds no Lease goes without renewal."""
    # Nobody holds a Lease that is gone: the term ends, rightly.
    errors = [e for e in ERRORS if not (resource is LEASES and isinstance(e, NotFoundError))]

    def fail(world: Everything) -> None:
        world.client.failing, world.client.failures = call, list(errors)

    async def scenario(world: Everything) -> None:
        bad = {f"bad-{number}": error for number, error in enumerate(errors)}
        for team, error in bad.items():
            world.client.refusals += refusals(call, error, team)
        if call not in UNTIL_SUCCESS:
            fail(world)
        world.kube.expire_watches()
        await serve(world, "good", *bad)

        late = Team(world, "late")
        await late.make()
        for error in errors:
            refusal = InjectedRefusal(error, method, resource, subresource=subresource)
            world.client.refusals = [refusal]
            world.kube.expire_watches()
            await world.clock.sleep(pause_s)
        world.client.refusals = []
        await world.claim_of("waits", "late")
        await late.go_on()
        await late.is_served()
        world.assert_all_go_on()
        used = len(errors) - len(world.client.failures)
        least = 0 if call in NOT_AGAIN else 1 if call in RARE else len(errors)
        assert used >= least, "the call was not made often enough"

    made, loops = run(scenario, before=fail if call in UNTIL_SUCCESS else None)
    assert_named(made, loops)
