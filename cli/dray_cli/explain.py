"""``dray explain``: why a pod or PodGroup waits, what it got, and how it ended."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import click

from dray.api import names
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    POOLS,
    SLICES,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_cli.cluster_names import GROUP_KINDS, GROUP_WORDS, explained_argument, namespace_option
from dray_cli.decision_source import DecisionSource, decided_by
from dray_cli.gpu_names import GpuNames, full_names_option, names_in
from dray_cli.output import output_option, print_json
from dray_cli.pod_claims import (
    claims_of,
    containers_of,
    devices_of,
    holdings_of,
    is_without_devices,
    sharers_of,
)
from dray_cli.pod_events import event_of
from dray_cli.pod_life import PodLife, life_of
from dray_cli.target import (
    connect_kube,
    kubeconfig_option,
    nats_option,
)
from dray_cli.text import wrapped_on_terminal

MOST_GPUS: Final = 4_000
"""The most GPUs that are evaluated for a pod that kube-scheduler places. This takes 0.4 s."""
_CLAIM_REFUSED: Final = "FailedResourceClaimCreation"
_NOT_EVALUATED: Final = (
    f"the cluster has {{gpus}} GPUs; more than {MOST_GPUS} are evaluated only with --devices"
)

if TYPE_CHECKING:
    from dray_cli.explain_group import GroupExplanation
    from dray_cli.scores import FoundScores


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a pod's allocation, only from Kubernetes objects."""

    pod: Object
    bind_request: Object | None
    claims: tuple[Object, ...]
    pool: Object | None = None
    """Its GPUPool, if this user may read it."""
    on_cards: tuple[str, ...] = ()
    """Why the pool's devices do not fit, if another allocator decides."""
    strange: tuple[Object, ...] = ()
    """The pod's other claims: written by hand, or other drivers'."""
    sharers: tuple[str, ...] = ()
    """Pods that dray does not place and that wait for a claim of this pod."""
    claim_refused: str = ""
    """Why Kubernetes did not create its claim; empty if it did, or has not tried yet."""
    by: DecisionSource | None = None
    """What the decision is based on; None if there is no decision."""
    life: PodLife = field(default_factory=PodLife)
    """What happened to it after the allocation."""

    @property
    def decides(self) -> str:
        """Who decides about the pod: ``spec.owner`` of its pool."""
        spec = (self.pool or {}).get("spec") or {}
        return str(spec.get("owner") or names.OWNER_DRAY)

    @property
    def scheduler_says(self) -> str:
        """Why kube-scheduler has not placed the pod, in its own words."""
        for condition in self.pod.get("status", {}).get("conditions") or ():
            unscheduled = condition["type"] == "PodScheduled" and condition["status"] == "False"
            if unscheduled and condition.get("reason") != "SchedulingGated":
                return str(condition.get("message") or condition.get("reason") or "")
        return ""

    @property
    def phase(self) -> str:
        return str(self.pod.get("status", {}).get("phase", "Pending"))

    @property
    def allocated(self) -> bool:
        if not self.claims and not self.pool_asked_for:
            return bool(self._by_hand)
        return bool(self.claims) and all(
            claim.get("status", {}).get("allocation") for claim in self.claims
        )

    @property
    def pool_asked_for(self) -> str:
        """The pool that its annotation names, or the empty string."""
        return str((self.pod["metadata"].get("annotations") or {}).get(names.GPUPOOL, ""))

    @property
    def _asks_for_gpus(self) -> bool:
        """Whether its claims ask for devices; the claim of a gang's CPU task does not."""
        return not all(map(is_without_devices, self.claims))

    @property
    def _by_hand(self) -> tuple[Object, ...]:
        """Claims that dray did not derive, but that hold devices of its driver: any claim may do
        so in a pool whose owner is kube-scheduler."""
        return tuple(claim for claim in self.strange if any(devices_of(claim, names.DRIVER)))

    @property
    def reasons(self) -> list[str]:
        """Why it waits, one line each; empty once it has its devices."""
        if self.life.end is not None:
            return []
        if self.decides != names.OWNER_DRAY:
            return [] if self.allocated else list(self.on_cards)
        status = (self.bind_request or {}).get("status", {})
        return [] if self.allocated else str(status.get("explanation", "")).splitlines()

    @property
    def node(self) -> str:
        """The node on which the pod runs or will run; empty while that is not decided."""
        spec = (self.bind_request or {}).get("spec") or {}
        bound = (self.pod.get("spec") or {}).get("nodeName")
        return str(bound or spec.get("selectedNode") or "")

    def _lacking(self) -> list[str]:
        """What its devices still need before it can be bound."""
        status = (self.bind_request or {}).get("status", {})
        if status.get("reason") != names.CONDITIONS_PENDING or self.pod["spec"].get("nodeName"):
            return []
        explanation = str(status.get("explanation", "")).split("; ")
        to = f" to {self.node}" if self.node else ""
        return [f"  and is bound{to} once they are ready:", *_indent(_indent(explanation))]

    def lines(self) -> list[str]:
        """The explanation as a person reads it."""
        lines = self._of_dray()
        if self.life.end is not None:
            return lines
        lines += self._of_strange_claims()
        if self.decides == names.OWNER_DRAY and self.scheduler_says:
            lines.append(f"  kube-scheduler says: {self.scheduler_says}")
        return lines

    def _of_dray(self) -> list[str]:
        metadata = self.pod["metadata"]
        pool = self.pool_asked_for
        head = f"Pod {metadata['namespace']}/{metadata['name']} is {self.phase}"
        by = _indent([self.by.line()]) if self.by is not None else []
        life = _indent(self.life.lines(self.phase))
        if (end := self.life.end) is not None and (pool or self.claims):
            return [f"{head}: it {end.words()}", *self._had(), *by]
        if self.phase == "Running" and self.life.node:
            head += f" on {self.life.node}"
        if self.claims and self.allocated:
            containers = containers_of(self.pod)
            holdings = holdings_of(self.claims, self.node, containers=containers)
            agents = self._silent() if self.phase == "Pending" and self.life.node else ""
            life += _indent([agents] if agents else [])
            has = "has its GPUs:" if self._asks_for_gpus else "is placed; it asks for no GPUs."
            return [f"{head} and {has}", *holdings, *self._lacking(), *life, *by]
        if self.allocated:
            holdings = holdings_of(self._by_hand, self.node, names.DRIVER)
            return [f"{head} and has GPUs by claims written by hand:", *holdings, *life]
        if not pool:
            return [f"{head}. It asks for no GPU of dray: it has no {names.GPUPOOL} annotation."]
        if self.decides != names.OWNER_DRAY:
            return self._elsewhere(head, pool)
        if not self.claims:
            missing = f"{head}: its ResourceClaim does not exist yet."
            refused = f"  Kubernetes did not create it: {self.claim_refused}"
            return [missing, refused] if self.claim_refused else [missing]
        if changing := self._changing():
            waits = f"{head}: nothing is decided in pool {pool!r} until its owner has changed:"
            return [waits, f"  {changing}"]
        problems = _indent([one for one in (self._unserved(), self._silent()) if one])
        if not self.reasons:
            return [f"{head}: no decision has been made yet for pool {pool!r}.", *problems]
        waits = (
            "waits for GPUs of" if self._asks_for_gpus else "asks for no GPUs and waits for room in"
        )
        because = f"{head}: it {waits} pool {pool!r} because"
        return [because, *_indent(self.reasons), *problems, *_indent(self._shared())]

    def _shared(self) -> list[str]:
        if not self.sharers:
            return []
        pods = ", ".join(self.sharers)
        return [
            f"A claim of the pod is also used by {pods} without dray's annotations: kube-scheduler "
            "may take the claim's allocation back to place that pod"
        ]

    def _had(self) -> list[str]:
        """The devices that an ended pod had, by its BindRequest, and whether they are free."""
        entries = ((self.bind_request or {}).get("spec") or {}).get("resourceClaimAllocations")
        given = tuple({"status": {"allocation": one.get("allocation")}} for one in entries or ())
        if not (holdings := holdings_of(given, self.node)):
            return []
        held = [
            claim["metadata"]["name"]
            for claim in self.claims
            if (claim.get("status") or {}).get("allocation")
        ]
        back = f"still held by claim {', '.join(held)}" if held else "given back"
        return [f"  Its GPUs, {back}:", *_indent(holdings)]

    def _elsewhere(self, head: str, pool: str) -> list[str]:
        lines = [f"{head}: {self.decides} decides about pool {pool!r} (spec.owner), not dray."]
        if changing := self._changing():
            lines.append(f"  The owner is being changed: {changing}")
        if self.pod.get("spec", {}).get("schedulerName") == names.DRAY_SCHEDULER:
            return [
                *lines,
                f"  The pod was admitted for {names.DRAY_SCHEDULER}, which can't be changed:",
                "  delete it and create it again.",
            ]
        says = self.scheduler_says or "nothing yet"
        lines.append(f"  {self.decides} says: {says}")
        if self.reasons:
            lines += [f"  On the cards of pool {pool!r}:", *_indent(_indent(self.reasons))]
        return lines + _indent([self._silent()] if self._silent() else [])

    def _unserved(self) -> str:
        """Why nobody decides about the pool; empty if somebody does."""
        for condition in ((self.pool or {}).get("status") or {}).get("conditions") or ():
            if condition.get("type") == "Served" and condition.get("status") == "False":
                since = condition.get("lastTransitionTime", "")
                return f"Served by no allocator since {since}: {condition.get('message', '')}"
        return ""

    def _silent(self) -> str:
        """Which nodes of the pool have no node-agent on the bus; empty: none is known."""
        for condition in ((self.pool or {}).get("status") or {}).get("conditions") or ():
            if condition.get("type") == "NodeAgentsSilent" and condition.get("status") == "True":
                return (
                    f"Of the pool's nodes: {condition.get('message', '')}. Do their node-agents "
                    "run, and can they connect to NATS?"
                )
        return ""

    def _changing(self) -> str:
        """The pool's message while its owner is being changed; else empty."""
        for condition in ((self.pool or {}).get("status") or {}).get("conditions") or ():
            if condition.get("reason") == "OwnerChanging":
                return str(condition.get("message", ""))
        return ""

    def _of_strange_claims(self) -> list[str]:
        lines = []
        for claim in self.strange:
            if not (claim.get("status") or {}).get("allocation"):
                taint = f"{names.OWNER_TAINT}={names.OWNER_DRAY}:NoSchedule"
                lines += [
                    f"  Claim {claim['metadata']['name']} is kube-scheduler's to allocate, not",
                    f"  dray's. Cards of dray's pools carry the device taint {taint},",
                    "  so it gets none of them: ask for those by annotations on the pod.",
                ]
        return lines

    def as_json(self) -> dict[str, Any]:
        """The explanation as data."""
        return {
            "namespace": self.pod["metadata"]["namespace"],
            "pod": self.pod["metadata"]["name"],
            "phase": self.phase,
            **self.life.as_json(),
            "allocated": self.allocated,
            "decides": self.decides,
            "schedulerSays": self.scheduler_says,
            "reasons": self.reasons,
            "decidedBy": self.by.as_json() if self.by is not None else None,
            "bindRequest": (self.bind_request or {}).get("status"),
            "claims": [
                {
                    "name": claim["metadata"]["name"],
                    "allocation": claim.get("status", {}).get("allocation"),
                }
                for claim in (*self.claims, *self.strange)
            ],
        }


def _indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


async def fetch_explanation(
    kube: Kube, namespace: str, name: str, *, most_gpus: float = MOST_GPUS
) -> Explanation:
    """Read everything that explains a pod.

    ``most_gpus``: if the cluster has more GPUs, they are not evaluated for a pod that
    kube-scheduler places.

    Raises:
        NotFoundError: there is no such pod.
    """
    pod = await kube.get(PODS, name, namespace)
    try:
        bind_request = await kube.get(BIND_REQUESTS, name, namespace)
    except NotFoundError:
        bind_request = None
    if bind_request is not None and _is_of_another(bind_request, pod):
        bind_request = None
    claims, strange = await claims_of(kube, pod)
    life = await life_of(kube, pod, (*claims, *strange))
    found = Explanation(pod, bind_request, claims, strange=strange, life=life)
    pool = await _pool(kube, found.pool_asked_for)
    found = replace(found, pool=pool, by=await decided_by(kube, pod, pool, bind_request))
    if found.allocated or life.end:
        return found
    if not claims and found.pool_asked_for:
        event = await event_of(kube, pod, _CLAIM_REFUSED)
        found = replace(found, claim_refused="" if event is None else event.message)
    if pool is None or found.decides == names.OWNER_DRAY:
        return replace(found, sharers=await sharers_of(kube, pod, claims))
    gpus = sum(one.get("status", {}).get("gpus", 0) for one in await _pools(kube))
    if gpus > most_gpus:
        return replace(found, on_cards=(_NOT_EVALUATED.format(gpus=gpus),))
    return replace(found, on_cards=await _on_cards(kube, pod, pool))


async def _pools(kube: Kube) -> Sequence[Object]:
    """All pools; empty if this user may not list them."""
    try:
        return (await kube.list(POOLS)).objects
    except RefusedError:
        return ()


def _is_of_another(bind_request: Object, pod: Object) -> bool:
    """Whether the BindRequest is about an earlier pod of the same name."""
    about = (bind_request.get("spec") or {}).get("podUID")
    return bool(about and about != pod["metadata"].get("uid", about))


async def _pool(kube: Kube, name: str) -> Object | None:
    """None also if this user may not read the pool: then dray is assumed to be its owner."""
    try:
        return await kube.get(POOLS, name) if name else None
    except (NotFoundError, RefusedError):
        return None


async def _on_cards(kube: Kube, pod: Object, pool: Object) -> tuple[str, ...]:
    """Why the pool's devices do not fit; empty if this user may not list the cluster's objects."""
    from dray_cli.cards import CardOverview, reasons_on_cards  # The whole allocator: slow to import

    try:
        classes, nodes, slices, claims = [
            (await kube.list(resource)).objects for resource in (CLASSES, NODES, SLICES, CLAIMS)
        ]
    except RefusedError:
        return ()
    cluster = CardOverview(classes, nodes, slices, claims)
    return tuple(str(reason) for reason in reasons_on_cards(pod, pool, cluster))


def pod_name(target: str) -> str:
    """``NAME`` of ``pod/NAME``, ``pods/NAME`` or ``NAME``.

    Raises:
        click.BadParameter: another kind was named, or nothing.
    """
    kind, slash, name = target.rpartition("/")
    if not name or (slash and kind not in ("pod", "pods", "po")):
        raise click.BadParameter(f"{target!r} is not a pod: name one as pod/NAME")
    return name


def group_name(target: str) -> tuple[Resource | None, str] | None:
    """``NAME`` of ``podgroup/NAME``, and the kind if its API group was named
    (``podgroup.scheduling.k8s.io/NAME``); None: another kind was named, or none."""
    kind, _, name = target.rpartition("/")
    word, _, api = kind.partition(".")
    if not name or word not in GROUP_WORDS:
        return None
    resource = next((one for one in GROUP_KINDS if one.group == api), None)
    return None if api and resource is None else (resource, name)


@click.command()
@explained_argument
@namespace_option
@click.option(
    "--scores",
    is_flag=True,
    help="Also print the nodes with the best scores, at the decision or now; needs the bus.",
)
@click.option(
    "--devices",
    is_flag=True,
    help="For a pod that kube-scheduler places: evaluate all GPUs, however many there are, which "
    "takes a second per 10 000.",
)
@full_names_option
@kubeconfig_option
@nats_option
@output_option
def explain(
    target: str,
    namespace: str,
    scores: bool,
    devices: bool,
    full_names: bool,
    kubeconfig: str | None,
    nats: str | None,
    output: str,
) -> None:
    """Say why a pod waits, clause by clause, what it got, or how it ended.

    For a PodGroup, say what it waits for and the state of each of its pods.

    The allocator that decided keeps the scores for some time. After that, --scores shows current
    scores; a recording still has the old ones: `dray replay FILE --scores pod/NAME`.
    """
    short = output == "text" and not full_names
    if (group := group_name(target)) is not None:
        if scores:
            raise click.UsageError("--scores works for pods only: name one as pod/NAME")
        _print_group(
            *asyncio.run(_explain_group(kubeconfig, namespace, group, short=short)), output
        )
        return
    most_gpus = math.inf if devices else MOST_GPUS
    found, gpu_names = asyncio.run(
        _explain(kubeconfig, namespace, pod_name(target), most_gpus, short=short)
    )
    if output == "text":
        click.echo(wrapped_on_terminal(gpu_names.shortened("\n".join(found.lines()))))
    scored = asyncio.run(_scores(kubeconfig, nats, found)) if scores else None
    if output == "json":
        print_json(found.as_json() | ({"scores": scored.as_json()} if scored else {}))
    elif scored is not None:
        scored.echo()


def _print_group(found: "GroupExplanation", gpu_names: GpuNames, output: str) -> None:
    if output == "json":
        print_json(found.as_json())
    else:
        click.echo(wrapped_on_terminal(gpu_names.shortened("\n".join(found.lines()))))


async def _explain_group(
    kubeconfig: str | None, namespace: str, group: tuple[Resource | None, str], *, short: bool
) -> "tuple[GroupExplanation, GpuNames]":
    from dray_cli.explain_group import explain_group  # A tenth of the import time.

    kube = await connect_kube(kubeconfig)
    try:
        found = await explain_group(kube, namespace, group[1], group[0])
        gpu_names = await names_in(kube, "\n".join(found.lines())) if short else GpuNames()
    finally:
        await kube.close()
    return found, gpu_names


async def _scores(kubeconfig: str | None, nats: str | None, found: Explanation) -> "FoundScores":
    from dray_cli.scores import FoundScores, read_scores  # The whole allocator: slow to import.

    if found.decides != names.OWNER_DRAY:
        return FoundScores(None, found.node, missing=f"{found.decides} decides, not dray")
    # Services and the bus: slow to import, and few ask for scores.
    from dray.bus.ports import BusUnavailableError
    from dray_cli.cluster_bus import open_bus

    try:
        async with open_bus(kubeconfig, nats) as bus:
            return await read_scores(bus, found.pod["metadata"]["uid"], found.node)
    except BusUnavailableError as error:
        return FoundScores(None, found.node, missing=str(error))


async def _explain(
    kubeconfig: str | None, namespace: str, name: str, most_gpus: float, *, short: bool
) -> tuple[Explanation, GpuNames]:
    kube = await connect_kube(kubeconfig)
    try:
        found = await fetch_explanation(kube, namespace, name, most_gpus=most_gpus)
        if not short:
            return found, GpuNames()
        return found, await names_in(kube, "\n".join(found.lines()), found.node)
    except NotFoundError as error:
        raise NotFoundError(
            f"there is no pod {namespace}/{name} in the cluster: is the name right, and the "
            f"namespace (-n)? ({error})"
        ) from error
    finally:
        await kube.close()
