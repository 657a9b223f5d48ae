"""The model's objects and their facts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from dray.api import names
from dray.api.claims import Claim, GivenUp
from dray.api.devices import Capacity, Device, DeviceClass, RequestPolicy, ResourceSlice
from dray.api.groups import GROUP_NAME_KEYS, VOLCANO
from dray.api.pods import GroupKey, Node, Policy, Pool
from dray.kube.convert import claim_from
from dray.kube.convert_groups import pod_group_from
from dray.kube.ports import CLAIMS, POD_GROUPS, PODS, Changed, Object
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    Fact,
    GroupObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of
from tools.model_checker.bounds import Bound, PodKind
from tools.model_checker.intern_table import Interned

POOL, NAMESPACE = "pool", "team"
TFLOPS = 312
"""Capacity of a device."""
TICK_S = 31.0
"""Longer than the timeout of uncommitted decisions."""
GROUP_TIMEOUT_S = 30.0
"""Shorter than a tick."""
GROUP = GroupKey(VOLCANO, NAMESPACE, "g")
START_UNIX_S = 1_000_000.0
GONE: Object = {}
"""The last version of an object that was deleted."""
NONE = -1
"""No ``GivenUp``."""


class SubjectKind(StrEnum):
    """The kind of a subject."""

    CLAIM = "claim"
    POD = "pod"
    NODE = "node"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that changes and has facts."""

    kind: SubjectKind
    name: str
    owner: int = -1
    """A claim's pod."""
    claims: tuple[int, ...] = ()
    """A pod's claims."""


class Subjects:
    """The subjects of a bound, with all visited versions and their facts."""

    def __init__(self, bound: Bound) -> None:
        self.versions: Interned[Object] = Interned()
        self.gone = self.number(GONE)
        self.all: list[Subject] = []
        self.first: list[int] = []
        """Initial versions by subject."""
        self.created_versions: dict[int, int] = {}
        """Versions at creation of subjects that do not exist initially."""
        self.group = _group(bound.group_minimum) if bound.group_minimum else None
        """The PodGroup, which does not change."""
        for pod in bound.pods:
            self._add_pod(pod)
        for node in bound.nodes:
            self._add(Subject(SubjectKind.NODE, node), {"pool": POOL, "revision": 1})
        self.time = self._add(Subject(SubjectKind.TIME, "time"), {"now_unix_s": START_UNIX_S})
        self.claims = self._of(SubjectKind.CLAIM)
        self.pods = self._of(SubjectKind.POD)
        self.nodes = self._of(SubjectKind.NODE)
        self.by_uid = {subject.name: index for index, subject in enumerate(self.all)}
        self.records: Interned[GivenUp] = Interned()
        """Records of given-up attempts."""
        self._facts: dict[tuple[int, ...], Fact] = {}

    def number(self, obj: Object) -> int:
        """The version's number."""
        return self.versions.of(json.dumps(obj, sort_keys=True), obj)

    def fact(self, subject: int, version: int, before: int, record: int = NONE) -> Fact:
        """The fact of a version; ``before``: the last existing version; ``record``: the record of
        given-up attempts."""
        key = (subject, version, before, record)
        known = self._facts.get(key)
        if known is None:
            known = self._facts[key] = self._fact(subject, version, before, record)
        return known

    def configuration(self) -> list[Fact]:
        """The initial facts."""
        slices = [slice_of(self.all[node].name) for node in self.nodes]
        return [
            DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS)),
            # A learning policy would have one state per history.
            PolicyObserved(revision=1, policy=Policy("policy", "u", placement=names.COMPACT_FIRST)),
            PoolObserved(revision=1, pool=Pool(POOL, "u-pool", template="policy")),
            DomainObserved(revision=1, domain=POOL, epoch=1),
            *(SliceObserved(revision=1, slice=one) for one in slices),
            *(GroupObserved(revision=1, group=pod_group_from(one)) for one in self._groups()),
            *(
                self.fact(index, first, first)
                for index, first in enumerate(self.first)
                if index not in self.created_versions
            ),
            Synced(revision=1, instance="c"),
        ]

    def _groups(self) -> list[Object]:
        return [] if self.group is None else [self.group]

    def claim(self, version: int) -> Claim:
        """The claim of a version."""
        return claim_from(self.versions[version])

    def cache(
        self, versions: Mapping[int, int], given_up: Mapping[int, int] = MappingProxyType({})
    ) -> ObjectCache:
        """The cache of a claim-controller that has read these versions and records."""
        made = ObjectCache()
        for claim, record in given_up.items():
            if record != NONE:
                made.give_up(self.all[claim].name, self.records[record])
        for node in self.nodes:
            one = slice_of(self.all[node].name)
            made.devices.keep(one.name, one, 1)
        for group in self._groups():
            made.apply(POD_GROUPS, Changed(group))
        for resource, kind in ((CLAIMS, SubjectKind.CLAIM), (PODS, SubjectKind.POD)):
            for subject, version in versions.items():
                if self.all[subject].kind is kind and version != self.gone:
                    made.apply(resource, Changed(self.versions[version]))
        return made

    def _fact(self, subject: int, version: int, before: int, record: int) -> Fact:
        one, obj = self.all[subject], self.versions[version]
        match one.kind:
            case SubjectKind.NODE:
                node = Node(
                    one.name,
                    f"u-{one.name}",
                    obj["pool"],
                    cpu_milli=64_000,
                    memory_bytes=2**38,
                    pods=110,
                )
                return NodeObserved(revision=obj["revision"], node=node)
            case SubjectKind.TIME:
                seconds = obj["now_unix_s"]
                return Tick(revision=int(seconds - START_UNIX_S) + 1, now_unix_s=seconds)
        if version == self.gone:
            return _tombstone(self.fact(subject, before, before))
        cache = self.cache({subject: version}, {subject: record})
        fact = fact_of(cache, FactKey(one.kind.value, one.name), NodeHistory())
        assert fact is not None
        return fact

    def _add_pod(self, pod: PodKind) -> None:
        index = len(self.all) + len(pod.claims)
        claims = []
        for count, tflops in enumerate(pod.claims, 1):
            claim = Subject(SubjectKind.CLAIM, f"{pod.name}{count}", index)
            claims.append(self._add(claim, _claim(claim.name, pod.name, tflops), pod.late))
        uids = [self.all[claim].name for claim in claims]
        one = Subject(SubjectKind.POD, pod.name, claims=tuple(claims))
        self._add(one, _pod(pod.name, uids, is_member=pod.is_member), pod.late)

    def _add(self, subject: Subject, obj: Object, late: bool = False) -> int:
        self.all.append(subject)
        number, index = self.number(obj), len(self.all) - 1
        if late:
            self.created_versions[index] = number
        self.first.append(self.gone if late else number)
        return index

    def _of(self, kind: SubjectKind) -> tuple[int, ...]:
        return tuple(index for index, one in enumerate(self.all) if one.kind is kind)


def slice_of(node: str) -> ResourceSlice:
    """The slice of a node, with one shareable device."""
    amount = str(TFLOPS)
    device = Device(
        name=f"{node}-device",
        attributes={"uuid": f"{node}-device", "pool_name": POOL},
        capacity={
            names.VIRTUAL_TFLOPS: Capacity(amount, RequestPolicy(default=amount, minimum="1")),
        },
        allow_multiple_allocations=True,
    )
    return ResourceSlice(f"s-{node}", f"u-s-{node}", names.DRIVER, node, 1, 1, node, (device,))


def _tombstone(last: Fact) -> Fact:
    match last:
        case ClaimObserved(claim=claim):
            return ClaimObserved(revision=last.revision + 1, claim=claim, deleted=True)
        case PodObserved(pod=pod):
            return PodObserved(revision=last.revision + 1, pod=pod, deleted=True)
        case _:
            raise TypeError(type(last).__name__)


def _claim(uid: str, pod: str, tflops: int) -> Object:
    asked: dict[str, Any] = {
        "deviceClassName": names.DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {names.VIRTUAL_TFLOPS: str(tflops)}},
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {
            "name": uid,
            "namespace": NAMESPACE,
            "uid": uid,
            "resourceVersion": "1",
            "labels": {names.POOL_LABEL: POOL},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": names.GPU_REQUEST, "exactly": asked}]}},
    }


def _group(minimum: int) -> Object:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": GROUP.name,
            "namespace": NAMESPACE,
            "uid": "u-g",
            "resourceVersion": "1",
            "annotations": {names.GANG_TIMEOUT: f"{GROUP_TIMEOUT_S:.0f}s"},
        },
        "spec": {"minMember": minimum},
    }


def _pod(name: str, claims: list[str], *, is_member: bool) -> Object:
    joined = {GROUP_NAME_KEYS[0]: GROUP.name} if is_member else {}
    references = [
        {"name": f"{names.CLAIM_REFERENCE}{index or ''}", "resourceClaimName": claim}
        for index, claim in enumerate(claims)
    ]
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": name,
            "resourceVersion": "1",
            "annotations": {names.GPUPOOL: POOL, names.SHAPE: "{}", **joined},
        },
        "spec": {
            "containers": [{"name": "main", "image": "any"}],
            "schedulerName": names.DRAY_SCHEDULER,
            "resourceClaims": references,
        },
        "status": {"phase": "Pending"},
    }
