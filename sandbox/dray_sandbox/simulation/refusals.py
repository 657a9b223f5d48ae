"""Requests that a server answers in one way, each time, for the rest of a run.

So answers a policy, a quota, an admission webhook that is down for one namespace, a server that an
object is too large for, or a permission that is missing: one object, one verb, one answer. All
other faults of the simulation pass; this one stays until it is lifted.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from dray.api.claims import Claim
from dray.kube.convert import pod_from
from dray.kube.ports import Object
from dray.messages.base import Delivered
from dray_sandbox.simulation.answers import (
    BUS_ANSWERS,
    KUBE_ANSWERS,
    READ_ANSWERS,
    TOO_LARGE,
    WORDS,
    FaultyAnswer,
)

TENANT: Final = "tenant"
"""The namespace of users for whom a server answers differently than for everybody else; the names
of their pods begin so, too."""
ALONE: Final = f"{TENANT}-alone"
"""A pod for which a server answers differently than for others of its namespace."""

MOST_PODS: Final = 8
"""Of the tenant."""
_AT_ONCE, _MOST_PER_S = 20, 4.0
"""Requests about one object that are refused: the first, and further ones per second."""


class About(Enum):
    """Whose objects the refused requests are about."""

    POD = auto()
    """One pod, or all pods of one namespace, and what belongs to them."""
    NAMESPACE = auto()
    """All pods of one namespace, for they share it."""
    NODE = auto()
    POOL = auto()
    PROCESS = auto()
    """Something that one process alone writes for itself."""


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A kind of request. ``{name}`` stands for the object's name where ``what`` and ``content``
    have it: both are regular expressions."""

    name: str
    about: About
    processes: str
    """How their names begin."""
    call: str
    """Server and method, such as ``kube.patch``."""
    what: str = ".*"
    """All of what the call is about: plural, name and subresource, or a subject."""
    content: str = ""
    """Found in the payload of what is sent to the bus."""
    provoked_by: tuple[str, ...] = ()
    """Faults after which such requests come that otherwise hardly ever do."""
    is_of_waiting: bool = False
    """Whether they are about pods that fit nowhere."""


def _kube(
    name: str,
    call: str,
    what: str,
    about: About = About.POD,
    who: str = "cc",
    provoked_by: tuple[str, ...] = (),
    is_of_waiting: bool = False,
) -> RequestKind:
    return RequestKind(name, about, who, f"kube.{call}", what, "", provoked_by, is_of_waiting)


def _bus(
    name: str,
    what: str,
    about: About,
    who: str = "cc",
    content: str = "",
    call: str = "publish",
    provoked_by: tuple[str, ...] = (),
) -> RequestKind:
    return RequestKind(name, about, who, f"bus.{call}", what, content, provoked_by)


_CLAIMS: Final = "resourceclaims/{name}-[^/]+"
_PODS: Final = "pods/{name}"
_REQUESTS: Final = "bindrequests/{name}"
_EVENTS: Final = r"events/{name}\.[0-9a-f]+"
_TEMPLATES: Final = "resourceclaimtemplates/[^/]+"
_SLICES: Final = r"resourceslices/tensor-fusion-resource-slice-{name}(\.part-\d+)?"
_AGENT: Final = "agent-{name}"
_CLAIM: Final = '"name":"{name}-'
_POD: Final = '"name":"{name}"'
_DOUBT: Final = ("fail_once",)
_REPLACED: Final = ("replace_pods",)
_WAITING: Final = ("cordon", "move_node")
_NODES: Final = ("move_node", "change_ratio", "delete_node")
_ANEW: Final = ("log_lost", "delete_pool")
_OPENED: Final = ("log_lost", "kill_leader")

READ: Final = "kube.read"

KUBE_KINDS: Final = (
    _kube("patch a claim", "patch", _CLAIMS, provoked_by=_ANEW),
    _kube("patch a claim's status", "patch", f"{_CLAIMS}/status"),
    _kube("patch a claim or its status", "patch", f"{_CLAIMS}(/status)?", provoked_by=_ANEW),
    _kube("get a claim", "get", _CLAIMS, provoked_by=_DOUBT),
    _kube("patch a pod", "patch", _PODS),
    _kube("get a pod", "get", _PODS, provoked_by=_DOUBT),
    _kube("bind a pod", "bind", "{name}"),
    _kube("create a template", "create", _TEMPLATES, About.NAMESPACE),
    _kube("delete a template", "delete", _TEMPLATES, About.NAMESPACE, provoked_by=("delete_odd",)),
    _kube("create a BindRequest", "create", _REQUESTS),
    _kube("patch a BindRequest", "patch", _REQUESTS, provoked_by=_REPLACED),
    _kube("patch a BindRequest's status", "patch", f"{_REQUESTS}/status"),
    _kube("delete a BindRequest", "delete", _REQUESTS, provoked_by=_REPLACED),
    _kube("create an event", "create", _EVENTS),
    _kube("get an event", "get", _EVENTS, provoked_by=_WAITING, is_of_waiting=True),
    _kube("patch an event", "patch", _EVENTS, provoked_by=_WAITING, is_of_waiting=True),
    _kube("get a pool", "get", "gpupools/{name}", About.POOL, provoked_by=_OPENED),
    _kube("patch a pool's status", "patch", "gpupools/{name}/status", About.POOL),
    _kube("patch a node", "patch", "nodes/{name}", About.NODE, provoked_by=_NODES),
    _kube("get a node", "get", "nodes/{name}", About.NODE, _AGENT, _NODES),
    _kube("list a node's slices", "list", "resourceslices", About.NODE, _AGENT, _NODES),
    _kube("create a slice", "create", _SLICES, About.NODE, _AGENT, ("delete_node",)),
    _kube("update a slice", "update", _SLICES, About.NODE, _AGENT, _NODES),
    _kube("get the Lease", "get", "leases/.*", About.PROCESS, "{name}"),
    _kube("update the Lease", "update", "leases/.*", About.PROCESS, "{name}"),
    _kube(
        "probe",
        "create",
        "(resourceslices|resourceclaims)/dray-probe",
        About.PROCESS,
        provoked_by=("kill_leader",),
    ),
)
READ_KINDS: Final = (
    _kube("read a claim", "read", _CLAIMS, provoked_by=("kill_leader",)),
    _kube("read a pod", "read", _PODS, provoked_by=("kill_leader",)),
    _kube("read a node", "read", "nodes/{name}", About.NODE),
    _kube("read a slice", "read", _SLICES, About.NODE),
    _kube("read a pool", "read", "gpupools/{name}", About.POOL),
)
"""Objects that a claim-controller gets in a form that it does not know, however it reads them."""
BUS_KINDS: Final = (
    _bus("publish a step", r"dray\.evt\.claim\.executed\..*", About.POD, content=_POD),
    _bus(
        "ask to void a claim",
        r"dray\.cmd\..*",
        About.POD,
        "alloc",
        _CLAIM,
        provoked_by=("on_what_is_written",),
    ),
    _bus("append a record", r"dray\.decision\.{name}\.\d+", About.POOL, "alloc", call="append"),
    _bus(
        "report an inventory",
        r"dray\.rpc\.inventory\.{name}",
        About.NODE,
        _AGENT,
        call="request",
        provoked_by=("sicken",),
    ),
)
"""A bus does not tell one fact of a claim-controller from another: where one gets no answer, none
does, and that is a fault of its own."""
SIZE_KINDS: Final = (
    _bus("publish a step that is large", r"dray\.evt\..*", About.POD, content=_POD),
    _bus("publish a large slice", r"dray\.state\.slice\..*-{name}", About.NODE, provoked_by=_NODES),
    _bus("publish a large node", r"dray\.state\.node\.v1\.{name}", About.NODE, provoked_by=_NODES),
    _bus("publish a large pool", r"dray\.state\.pool\.v1\.{name}", About.POOL),
    _bus(
        "publish a large inventory",
        r"dray\.state\.inventory\.v1\.{name}",
        About.NODE,
        provoked_by=("sicken",),
    ),
)
"""What is larger than the bus takes, whatever is left out. Allocators count the bytes of what they
decide themselves, and append nothing that is larger."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of request, and how it is answered."""

    kind: RequestKind
    answer: FaultyAnswer

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.answer.name}"


KINDS: Final = (*KUBE_KINDS, *READ_KINDS, *BUS_KINDS, *SIZE_KINDS)


def cases() -> tuple[Case, ...]:
    """Every kind with every answer, so that as many as there are kinds have each kind once."""
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
    """A case that is in force for certain objects; ``refuse`` makes one."""

    case: Case
    name: str
    """Of the pod, node, pool or process; empty: every pod of ``TENANT``."""
    processes: str
    namespace: str
    what: re.Pattern[str]
    content: re.Pattern[bytes]
    since_s: float = 0.0
    count: int = 0
    """Requests answered so far."""

    def meets(self, process: str, call: str, what: str, namespace: str, payload: bytes) -> bool:
        """Whether this is the answer to a request."""
        return (
            call == self.case.kind.call
            and process.startswith(self.processes)
            and self.namespace in ("", namespace)
            and self.what.fullmatch(what) is not None
            and self.content.search(payload) is not None
        )

    def is_hot(self, now_s: float) -> bool:
        """Whether what is refused is tried again without a rest."""
        objects = 1 if self.name else MOST_PODS
        most = objects * (_AT_ONCE + _MOST_PER_S * (now_s - self.since_s))
        return self.case.kind.call != READ and self.count > most

    def is_about(self, pod: Object) -> bool:
        """Whether a pod may be kept waiting by it."""
        if self.case.kind.about is About.POOL:
            return pod_from(pod).pool == self.name
        return self.is_about_name(pod["metadata"]["name"])

    def is_about_name(self, name: str) -> bool:
        """Whether it is about the pod of a name, or about a claim of that pod."""
        if self.case.kind.about not in (About.POD, About.NAMESPACE):
            return False
        return f"{name}-".startswith(f"{self.name or TENANT}-")

    def is_about_claim(self, claim: Claim) -> bool:
        """Whether devices may be held for the claim as long as it is in force."""
        if self.case.kind.about is About.POOL:
            return claim.pool == self.name
        return self.is_about_name(claim.name)

    def is_about_node(self, name: str) -> bool:
        """Whether it may keep pods from a node."""
        return self.case.kind.about is About.NODE and name == self.name

    def is_about_pool(self, name: str) -> bool:
        """Whether it may keep a pool from being served."""
        return self.case.kind.about is About.POOL and name == self.name

    @property
    def hides_claims(self) -> bool:
        """Whether of some claims nobody can read what they hold."""
        return self.case.kind.call == READ and self.case.kind.what == _CLAIMS

    def is_read(self, plural: str, name: str) -> bool:
        """Whether an object is read in a form that nobody knows."""
        return self.case.kind.call == READ and self.what.fullmatch(f"{plural}/{name}") is not None

    def is_of_fact(self, message: Delivered) -> bool:
        """Whether a fact like this one can't be published."""
        return (
            self.case.kind.call == "bus.publish"
            and self.what.fullmatch(message.subject) is not None
            and self.content.search(message.payload) is not None
        )

    @property
    def is_of_content(self) -> bool:
        """Whether only another content of the object ends it."""
        return self.case.kind.call == READ or self.case.answer is TOO_LARGE

    @property
    def words(self) -> tuple[str, ...]:
        """One of these is in the reason of a pod that is kept waiting by it; empty: anything."""
        if self.case.kind.about not in (About.POD, About.NAMESPACE):
            return ("",)
        if self.case.answer is TOO_LARGE:
            return ("max_payload",)
        # Its own claim can't be read, or another one, which may hold the devices.
        return ("can't be read", "unparsable") if self.case.kind.call == READ else (WORDS,)

    def keeps_templates_of(self, namespace: str) -> bool:
        """Whether derived templates of a namespace may stay that nobody uses: none can be deleted,
        or nobody knows which ones a pod uses."""
        kinds = ("delete a template", "read a pod")
        return self.case.kind.name in kinds and namespace == self.namespace

    def __str__(self) -> str:
        return f"{self.case} ({self.name or TENANT})"


def refuse(case: Case, name: str = "", namespace: str = "") -> LastingRefusal:
    """The case for one object, or for all pods of ``TENANT``."""
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
