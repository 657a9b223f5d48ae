"""Each service does with its own role all that it has to, and none has more than that."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.conformance.rbac.full_run import HANDED, SETTINGS, everything
from tests.conformance.stand import NAMESPACE, Stand, standing

from dray.api.names import DRAY_NAMESPACE
from dray.kube.api import connect
from dray.kube.ports import CLAIMS, Kube, Object, RefusedError, Resource
from dray.messages.facts import ClusterObserved
from dray_sandbox.access import CLAIM_CONTROLLER, NODE_AGENT, WEBHOOK
from dray_sandbox.chart import service_roles
from dray_sandbox.controlplane.audit import AuditedRequest
from dray_sandbox.layout import StackOptions, simulated_nodes
from tools.faults.fault_stack import create_pools
from tools.faults.plan import DEDICATED, SHARED

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]
USERS = (CLAIM_CONTROLLER, NODE_AGENT, WEBHOOK)
ROLES, BINDINGS = (
    Resource("rbac.authorization.k8s.io", "v1", kind.lower() + "s", kind, namespaced=False)
    for kind in ("ClusterRole", "ClusterRoleBinding")
)
GRANT = "granted-by-the-test"
CARD = {"request": "gpu", "driver": "gpus.dray.dev", "pool": "nowhere", "device": "gpu-0"}
"""Of another driver, so that it is nobody's of dray's."""
GRANULAR_SINCE = 36
"""The x of Kubernetes 1.x that checks ``resourceclaims/binding`` and ``resourceclaims/driver``."""

TAINT_RULES_SINCE = 37
"""The x of Kubernetes 1.x that serves DeviceTaintRules by default."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """What a user may do, or has done."""

    user: str
    verb: str
    group: str
    resource: str
    """With its subresource."""
    namespace: str = ""
    """Empty: all of them."""

    def __str__(self) -> str:
        return f"{self.user}: {self.verb} {self.resource}.{self.group or 'core'}"


@dataclass(frozen=True, slots=True)
class Run:
    """A full run."""

    stand: Stand
    kept: ClusterObserved
    minor: int
    requests: list[AuditedRequest]
    """What dray's users asked of the API server."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run() -> AsyncIterator[Run]:
    options = StackOptions(
        name="conformance-rbac",
        control_plane="real",
        nodes=simulated_nodes(3, gpus=2, models=("A100",), pools=(DEDICATED, SHARED, HANDED)),
        settings=SETTINGS,
    )
    async with standing(options) as stand:
        await create_pools(stand.kube)
        kept = await stand.until(stand.published, "the probe")
        minor = int((await stand.kube.version()).split(".")[1])

        def has_read_pods() -> bool:
            return Right(CLAIM_CONTROLLER, "get", "", "pods") in set(_used(stand.audited(*USERS)))

        await everything(stand, kept, has_read_pods)
        yield Run(stand, kept, minor, stand.audited(*USERS))


async def test_nothing_is_forbidden_to_anybody(run: Run) -> None:
    requests = run.requests

    assert len(requests) > 200
    assert [(one.user, one.verb, one.path) for one in requests if one.forbidden] == []


async def test_every_right_comes_from_the_services_own_role(run: Run) -> None:
    for one in run.requests:
        if one.resource:
            assert one.user in one.reason, (one.path, one.reason)
            assert "Binding" in one.reason, (one.path, one.reason)


async def test_the_webhook_asks_nothing_of_the_api_server(run: Run) -> None:
    assert [one.path for one in run.requests if one.user == WEBHOOK] == []


async def test_no_unused_right_is_granted(run: Run) -> None:
    granted, used = set(_granted(service_roles())), set(_used(run.requests))
    # Checked with another request, not with one of its own; the test below shows that.
    for right in used & {Right(CLAIM_CONTROLLER, "patch", CLAIMS.group, "resourceclaims/status")}:
        used = used | {Right(right.user, right.verb, right.group, "resourceclaims/binding")}
    # Asked only where the kubelet is ahead of the node-agent's watch.
    used = used | {Right(NODE_AGENT, "get", "", "pods")}

    # Where nodes are not shared, no pod comes late onto a card that another has.
    spare = [] if run.kept.device_taints else [f"{CLAIM_CONTROLLER}: create pods/eviction.core"]
    if run.minor < TAINT_RULES_SINCE:  # They are asked for, and there are none to watch.
        spare.append(f"{CLAIM_CONTROLLER}: watch devicetaintrules.resource.k8s.io")
    # The same; they need a feature gate, and JobSets a controller of their own.
    for right in ("patch podgroups/status.scheduling", "watch podgroups.scheduling"):
        spare.append(f"{CLAIM_CONTROLLER}: {right}.k8s.io")
    spare.append(f"{CLAIM_CONTROLLER}: get jobsets.jobset.x-k8s.io")
    assert sorted(str(right) for right in granted - used) == sorted(spare)


async def test_allocations_are_refused_without_the_right_to_bind_claims(run: Run) -> None:
    status, binding = "resourceclaims/status", "resourceclaims/binding"
    allocation = {"allocation": {"devices": {"results": [CARD]}}}
    async with _claim(run, "granular") as claim, _connection(run, WEBHOOK) as kube:

        async def reported(words: str) -> bool:
            return words in await _refusal(kube, claim, allocation)

        assert await reported(f'cannot patch resource "{status}"')
        if run.minor >= GRANULAR_SINCE:
            asked = f'requires resource="{binding}", verb="patch" permission'
            await _grant(run, {status: "patch"})
            await run.stand.until(lambda: reported(asked), "the right to bind is asked for")
            await _grant(run, {status: "patch", binding: "update"})
            await run.stand.until(lambda: reported(asked), "another verb does not do")
        await _grant(run, {status: "patch", binding: "patch"})

        async def allocated() -> bool:
            return not await _refusal(kube, claim, allocation)

        await run.stand.until(allocated, "the claim is allocated")
    await _revoke(run)


async def test_what_drivers_say_of_devices_is_refused_to_every_service(run: Run) -> None:
    """dray's node-agent writes no status; its role would have to be widened by two rules."""
    stated = {"devices": [{**CARD, "data": {"seen": "by its driver"}}]}
    del stated["devices"][0]["request"]
    async with _claim(run, "driver") as claim:
        allocation = {"allocation": {"devices": {"results": [CARD]}}}
        assert not await _refusal(run.stand.kube, claim, allocation)
        async with _connection(run, NODE_AGENT) as kube:
            refusal = await _refusal(kube, claim, stated)
            assert 'cannot patch resource "resourceclaims/status"' in refusal
        if run.minor >= GRANULAR_SINCE:
            async with _connection(run, CLAIM_CONTROLLER) as kube:
                refusal = await _refusal(kube, claim, stated)
                assert 'requires resource="resourceclaims/driver"' in refusal
                assert "arbitrary-node:patch" in refusal


def _granted(roles: Iterable[Object]) -> Iterator[Right]:
    for role in roles:
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(role["metadata"]["name"], verb, group, resource, namespace)


def _used(requests: Iterable[AuditedRequest]) -> Iterator[Right]:
    for one in requests:
        if one.resource and not one.forbidden:
            resource = f"{one.resource}/{one.subresource}" if one.subresource else one.resource
            namespace = DRAY_NAMESPACE if one.resource == "leases" else ""
            yield Right(one.user, one.verb, one.group, resource, namespace)


@asynccontextmanager
async def _claim(run: Run, name: str) -> AsyncIterator[Object]:
    """A claim for another driver's device: nobody but the test allocates it."""
    selector = {"cel": {"expression": f'device.driver == "{CARD["driver"]}"'}}
    exactly = {"deviceClassName": "nobody.dray.dev", "selectors": [selector]}
    request = {"name": "gpu", "exactly": exactly}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    yield await run.stand.kube.create(CLAIMS, claim, NAMESPACE)
    await run.stand.kube.delete(CLAIMS, name, NAMESPACE)


@asynccontextmanager
async def _connection(run: Run, user: str) -> AsyncIterator[Kube]:
    kube = await connect(run.stand.stack.record.kubeconfigs[user], user_agent="test")
    try:
        yield kube
    finally:
        await kube.close()


async def _refusal(kube: Kube, claim: Object, status: Mapping[str, Any]) -> str:
    """Why the status was not written; empty if it was."""
    name = claim["metadata"]["name"]
    try:
        await kube.patch(CLAIMS, name, {"status": status}, NAMESPACE, subresource="status")
    except RefusedError as error:
        return str(error)
    return ""


async def _grant(run: Run, verbs: Mapping[str, str]) -> None:
    """Give the webhook's user, who has no right, one verb of each resource."""
    await _revoke(run)
    rules = [
        {"apiGroups": [CLAIMS.group], "resources": [resource], "verbs": [verb]}
        for resource, verb in verbs.items()
    ]
    metadata, group = {"name": GRANT}, ROLES.group
    await run.stand.kube.create(ROLES, {"metadata": metadata, "rules": rules})
    subject = {"apiGroup": group, "kind": "User", "name": WEBHOOK}
    role = {"apiGroup": group, "kind": ROLES.kind, "name": GRANT}
    binding = {"metadata": metadata, "roleRef": role, "subjects": [subject]}
    await run.stand.kube.create(BINDINGS, binding)


async def _revoke(run: Run) -> None:
    await run.stand.kube.delete(BINDINGS, GRANT)
    await run.stand.kube.delete(ROLES, GRANT)
