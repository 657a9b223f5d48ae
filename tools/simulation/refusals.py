"""Lasting refusals: requests that a server answers in the same way each time.

Causes are a policy, a quota, an admission webhook that is down for one namespace, an object that is
too large, or a missing permission: one object, one verb, one answer. All other faults end by
themselves.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from dray.api.claims import Claim
from dray.kube.convert import pod_from
from dray.kube.ports import Object
from dray.messages.base import Delivered
from tools.simulation.answers import (
    BUS_ANSWERS,
    KUBE_ANSWERS,
    MARKER,
    READ_ANSWERS,
    TOO_LARGE,
    FaultyAnswer,
)

TENANT: Final = "tenant"
"""The namespace whose requests are refused, and the prefix of its pods' names."""
SINGLE_POD: Final = f"{TENANT}-alone"
"""A pod whose requests are refused, unlike those of others in its namespace."""

MOST_PODS: Final = 8
"""Most pods of the tenant."""
_BURST, _MOST_PER_S = 20, 4.0
"""Allowed refused requests about one object: a burst, and more per second."""


class RefusalScope(Enum):
    """The objects that refused requests concern."""

    POD = auto()
    """One pod, or all pods of one namespace, and their objects."""
    NAMESPACE = auto()
    """An object that all pods of one namespace share."""
    NODE = auto()
    POOL = auto()
    PROCESS = auto()
    """An object of one process."""


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A kind of request. ``what`` and ``content`` are regular expressions, in which ``{name}``
    stands for the object's name."""

    name: str
    scope: RefusalScope
    processes: str
    """Prefix of their names."""
    call: str
    """Server and method, for example ``kube.patch``."""
    what: str = ".*"
    """The call's subject: plural, name and subresource, or a subject of the bus."""
    content: str = ""
    """Searched in the payload of a message to the bus."""
    provoked_by: tuple[str, ...] = ()
    """Faults that cause such requests, which are rare otherwise."""
    needs_unschedulable_pod: bool = False
    """Whether the requests concern unschedulable pods."""


def _kube(
    name: str,
    call: str,
    what: str,
    scope: RefusalScope = RefusalScope.POD,
    who: str = "cc",
    provoked_by: tuple[str, ...] = (),
    needs_unschedulable_pod: bool = False,
) -> RequestKind:
    return RequestKind(
        name, scope, who, f"kube.{call}", what, "", provoked_by, needs_unschedulable_pod
    )


def _bus(
    name: str,
    what: str,
    scope: RefusalScope,
    who: str = "cc",
    content: str = "",
    call: str = "publish",
    provoked_by: tuple[str, ...] = (),
) -> RequestKind:
    return RequestKind(name, scope, who, f"bus.{call}", what, content, provoked_by)


_CLAIMS: Final = "resourceclaims/{name}-[^/]+"
_PODS: Final = "pods/{name}"
_REQUESTS: Final = "bindrequests/{name}"
_EVENTS: Final = r"events/{name}\.[0-9a-f]+"
_TEMPLATES: Final = "resourceclaimtemplates/[^/]+"
_SLICES: Final = r"resourceslices/tensor-fusion-resource-slice-{name}(\.part-\d+)?"
_AGENT: Final = "agent-{name}"
_CLAIM: Final = '"name":"{name}-'
_POD: Final = '"name":"{name}"'
_AFTER_FAILED_PATCH: Final = ("fail_once",)
_AFTER_REPLACED_PODS: Final = ("replace_pods",)
_AFTER_NODE_CHANGES: Final = ("cordon", "move_node")
_AFTER_SLICE_CHANGES: Final = ("move_node", "change_ratio", "delete_node")
_AFTER_LOST_LOG: Final = ("lose_log", "delete_pool")
_AFTER_NEW_LEADER: Final = ("lose_log", "kill_leader")

READ: Final = "kube.read"

KUBE_KINDS: Final = (
    _kube("patch a claim", "patch", _CLAIMS, provoked_by=_AFTER_LOST_LOG),
    _kube("patch a claim's status", "patch", f"{_CLAIMS}/status"),
    _kube(
        "patch a claim or its status", "patch", f"{_CLAIMS}(/status)?", provoked_by=_AFTER_LOST_LOG
    ),
    _kube("get a claim", "get", _CLAIMS, provoked_by=_AFTER_FAILED_PATCH),
    _kube("patch a pod", "patch", _PODS),
    _kube("get a pod", "get", _PODS, provoked_by=_AFTER_FAILED_PATCH),
    _kube("bind a pod", "bind", "{name}"),
    _kube("create a template", "create", _TEMPLATES, RefusalScope.NAMESPACE),
    _kube(
        "delete a template",
        "delete",
        _TEMPLATES,
        RefusalScope.NAMESPACE,
        provoked_by=("delete_odd",),
    ),
    _kube("create a BindRequest", "create", _REQUESTS),
    _kube("patch a BindRequest", "patch", _REQUESTS, provoked_by=_AFTER_REPLACED_PODS),
    _kube("patch a BindRequest's status", "patch", f"{_REQUESTS}/status"),
    _kube("delete a BindRequest", "delete", _REQUESTS, provoked_by=_AFTER_REPLACED_PODS),
    _kube("create an event", "create", _EVENTS),
    _kube(
        "get an event",
        "get",
        _EVENTS,
        provoked_by=_AFTER_NODE_CHANGES,
        needs_unschedulable_pod=True,
    ),
    _kube(
        "patch an event",
        "patch",
        _EVENTS,
        provoked_by=_AFTER_NODE_CHANGES,
        needs_unschedulable_pod=True,
    ),
    _kube("get a pool", "get", "gpupools/{name}", RefusalScope.POOL, provoked_by=_AFTER_NEW_LEADER),
    _kube("patch a pool's status", "patch", "gpupools/{name}/status", RefusalScope.POOL),
    _kube(
        "patch a node", "patch", "nodes/{name}", RefusalScope.NODE, provoked_by=_AFTER_SLICE_CHANGES
    ),
    _kube("get a node", "get", "nodes/{name}", RefusalScope.NODE, _AGENT, _AFTER_SLICE_CHANGES),
    _kube(
        "list a node's slices",
        "list",
        "resourceslices",
        RefusalScope.NODE,
        _AGENT,
        _AFTER_SLICE_CHANGES,
    ),
    _kube("create a slice", "create", _SLICES, RefusalScope.NODE, _AGENT, ("delete_node",)),
    _kube("update a slice", "update", _SLICES, RefusalScope.NODE, _AGENT, _AFTER_SLICE_CHANGES),
    _kube("get the Lease", "get", "leases/.*", RefusalScope.PROCESS, "{name}"),
    _kube("update the Lease", "update", "leases/.*", RefusalScope.PROCESS, "{name}"),
    _kube(
        "probe",
        "create",
        "(resourceslices|resourceclaims)/dray-probe",
        RefusalScope.PROCESS,
        provoked_by=("kill_leader",),
    ),
)
READ_KINDS: Final = (
    _kube("read a claim", "read", _CLAIMS, provoked_by=("kill_leader",)),
    _kube("read a pod", "read", _PODS, provoked_by=("kill_leader",)),
    _kube("read a node", "read", "nodes/{name}", RefusalScope.NODE),
    _kube("read a slice", "read", _SLICES, RefusalScope.NODE),
    _kube("read a pool", "read", "gpupools/{name}", RefusalScope.POOL),
)
"""Objects that a claim-controller reads in an unknown form."""
BUS_KINDS: Final = (
    _bus("publish a step", r"dray\.evt\.claim\.executed\..*", RefusalScope.POD, content=_POD),
    _bus(
        "send a command to void a claim",
        r"dray\.cmd\..*",
        RefusalScope.POD,
        "alloc",
        _CLAIM,
        provoked_by=("delay_claim_patch",),
    ),
    _bus(
        "append a record", r"dray\.decision\.{name}\.\d+", RefusalScope.POOL, "alloc", call="append"
    ),
    _bus(
        "report an inventory",
        r"dray\.rpc\.inventory\.{name}",
        RefusalScope.NODE,
        _AGENT,
        call="request",
        provoked_by=("change_gpu_health",),
    ),
)
"""Facts of a claim-controller are not among them: the bus refuses all of them or none, which is
another fault."""
SIZE_KINDS: Final = (
    _bus("publish a step that is large", r"dray\.evt\..*", RefusalScope.POD, content=_POD),
    _bus(
        "publish a large slice",
        r"dray\.state\.slice\..*-{name}",
        RefusalScope.NODE,
        provoked_by=_AFTER_SLICE_CHANGES,
    ),
    _bus(
        "publish a large node",
        r"dray\.state\.node\.v1\.{name}",
        RefusalScope.NODE,
        provoked_by=_AFTER_SLICE_CHANGES,
    ),
    _bus("publish a large pool", r"dray\.state\.pool\.v1\.{name}", RefusalScope.POOL),
    _bus(
        "publish a large inventory",
        r"dray\.state\.inventory\.v1\.{name}",
        RefusalScope.NODE,
        provoked_by=("change_gpu_health",),
    ),
)
"""Messages that are too large for the bus even when shortened. Allocators limit the size of their
records themselves."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of request and its answer."""

    kind: RequestKind
    answer: FaultyAnswer

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.answer.name}"


KINDS: Final = (*KUBE_KINDS, *READ_KINDS, *BUS_KINDS, *SIZE_KINDS)


def cases() -> tuple[Case, ...]:
    """Every kind with every answer; the first ``len(KINDS)`` have each kind once."""
    longest = max(map(len, map(_answers, KINDS)))
    return tuple(
        Case(kind, answers[(number + turn) % len(answers)])
        for turn in range(longest)
        for number, kind in enumerate(KINDS)
        if turn < len(answers := _answers(kind))
    )


def _answers(kind: RequestKind) -> tuple[FaultyAnswer, ...]:
    if kind.call == READ:
        return READ_ANSWERS
    if kind in SIZE_KINDS:
        return (TOO_LARGE,)
    return KUBE_ANSWERS if kind.call.startswith("kube.") else BUS_ANSWERS


@dataclass(slots=True)
class LastingRefusal:
    """A case for certain objects; made by ``refuse``."""

    case: Case
    name: str
    """The pod's, node's, pool's or process' name; empty: every pod of ``TENANT``."""
    processes: str
    namespace: str
    what: re.Pattern[str]
    content: re.Pattern[bytes]
    since_s: float = 0.0
    count: int = 0
    """Requests answered so far."""

    def matches(self, process: str, call: str, what: str, namespace: str, payload: bytes) -> bool:
        """Whether the refusal applies to a request."""
        return (
            call == self.case.kind.call
            and process.startswith(self.processes)
            and self.namespace in ("", namespace)
            and self.what.fullmatch(what) is not None
            and self.content.search(payload) is not None
        )

    def is_retried_too_often(self, now_s: float) -> bool:
        """Whether dray retries without a sufficient backoff."""
        objects = 1 if self.name else MOST_PODS
        most = objects * (_BURST + _MOST_PER_S * (now_s - self.since_s))
        return self.case.kind.call != READ and self.count > most

    def concerns_pod(self, pod: Object) -> bool:
        """Whether the refusal may keep a pod waiting."""
        if self.case.kind.scope is RefusalScope.POOL:
            return pod_from(pod).pool == self.name
        return self.concerns_pod_name(pod["metadata"]["name"])

    def concerns_pod_name(self, name: str) -> bool:
        """Whether it concerns a pod of that name, or the pod of a claim of that name."""
        if self.case.kind.scope not in (RefusalScope.POD, RefusalScope.NAMESPACE):
            return False
        return f"{name}-".startswith(f"{self.name or TENANT}-")

    def concerns_claim(self, claim: Claim) -> bool:
        """Whether devices may stay assumed for the claim meanwhile."""
        if self.case.kind.scope is RefusalScope.POOL:
            return claim.pool == self.name
        return self.concerns_pod_name(claim.name)

    def concerns_node(self, name: str) -> bool:
        """Whether it may block a node."""
        return self.case.kind.scope is RefusalScope.NODE and name == self.name

    def concerns_pool(self, name: str) -> bool:
        """Whether it may block a pool."""
        return self.case.kind.scope is RefusalScope.POOL and name == self.name

    @property
    def hides_claims(self) -> bool:
        """Whether some claims' allocations are unreadable."""
        return self.case.kind.call == READ and self.case.kind.what == _CLAIMS

    def is_read(self, plural: str, name: str) -> bool:
        """Whether an object is read in an unknown form."""
        return self.case.kind.call == READ and self.what.fullmatch(f"{plural}/{name}") is not None

    def concerns_fact(self, message: Delivered) -> bool:
        """Whether such a fact can't be published."""
        return (
            self.case.kind.call == "bus.publish"
            and self.what.fullmatch(message.subject) is not None
            and self.content.search(message.payload) is not None
        )

    @property
    def is_of_content(self) -> bool:
        """Whether the object's content causes it."""
        return self.case.kind.call == READ or self.case.answer is TOO_LARGE

    @property
    def reasons(self) -> tuple[str, ...]:
        """A waiting pod's explanation contains one of these; "" allows any explanation."""
        if self.case.kind.scope not in (RefusalScope.POD, RefusalScope.NAMESPACE):
            return ("",)
        if self.case.answer is TOO_LARGE:
            return ("max_payload",)
        # Its claim can't be read, or another one that may hold the devices.
        return ("can't be read", "unparsable") if self.case.kind.call == READ else (MARKER,)

    def keeps_templates_of(self, namespace: str) -> bool:
        """Whether unused derived templates of a namespace may stay: they can't be deleted, or
        pods' uses are unreadable."""
        kinds = ("delete a template", "read a pod")
        return self.case.kind.name in kinds and namespace == self.namespace

    def __str__(self) -> str:
        return f"{self.case} ({self.name or TENANT})"


def refuse(case: Case, name: str = "", namespace: str = "") -> LastingRefusal:
    """The refusal of a case for one object, or for all pods of ``TENANT``."""
    kind = case.kind
    pattern, content = re.escape(name) or "[^/]+", kind.content
    if not name:
        for one in (_CLAIM, _POD):
            content = content.replace(one, f'"namespace":"{TENANT}"')
    return LastingRefusal(
        case,
        name,
        kind.processes.replace("{name}", name),
        namespace if kind.call.startswith("kube.") else "",
        re.compile(kind.what.replace("{name}", pattern)),
        re.compile(content.replace("{name}", pattern).encode(), re.DOTALL),
    )
