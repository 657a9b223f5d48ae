"""Which PodGroup a pod joins: the one it names, or one for its owner."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dray.api.groups import (
    GROUP_NAME_KEYS,
    JOB_SET_UID,
    MAX_MEMBERS,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
)
from dray.api.names import (
    GANG_ANNOTATIONS,
    GANG_ENABLED,
    GANG_LOSS_POLICY,
    GANG_MIN_MEMBERS,
    GANG_TIMEOUT,
)
from dray.kube.convert_groups import LOSS_ENDS, LOSS_KEEPS, is_group_name, owned_name
from dray.runtime.units import parse_duration
from dray_webhook.decisions.annotation_values import boolean, quoted
from dray_webhook.decisions.annotations import AnnotationFindings, AnnotationReader
from dray_webhook.decisions.review import Object, annotations_of

_JOB = ("batch/", "Job")


@dataclass(frozen=True, slots=True)
class JoinedGroup:
    """The group of a pod."""

    name: str = ""
    """Empty: none."""
    is_native: bool = False
    """Whether it is a PodGroup of ``scheduling.k8s.io``."""
    is_owned: bool = False
    """Whether dray creates it for the owner of the pod, and the pod does not name it."""


NO_GROUP = JoinedGroup()


def join_group(pod: Object, findings: AnnotationFindings) -> JoinedGroup:
    """The group of a pod; adds errors to ``findings``."""
    reader = AnnotationReader(annotations_of(pod), findings)
    asks = reader.read(GANG_ENABLED, boolean, False)
    least = reader.read(GANG_MIN_MEMBERS, _min_members, 0)
    timeout_s = reader.read(GANG_TIMEOUT, _timeout, 0.0)
    findings.warnings.extend(short_timeout(timeout_s))
    reader.read(GANG_LOSS_POLICY, _loss_policy, "")
    native = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""
    named = _named(pod)
    names = dict.fromkeys(name for _, name in named)
    findings.errors.extend(_conflicts(named, native))
    if native:
        return JoinedGroup(native, is_native=True)
    if names:
        return JoinedGroup(next(iter(names)))
    if asks:
        return _of_owner(pod, least, findings)
    if written := [name for name in GANG_ANNOTATIONS if name in reader.annotations]:
        findings.warnings.extend(
            f'annotation {name} has no effect without {GANG_ENABLED}: "true"'
            for name in written
            if name != GANG_ENABLED
        )
    return NO_GROUP


def name_group(annotations: Object, group: JoinedGroup) -> None:
    """Write the group's name, if the pod does not name the group itself."""
    if group.is_owned:
        annotations[GROUP_NAME_KEYS[0]] = group.name


def _named(pod: Object) -> list[tuple[str, str]]:
    """The places at which the pod names a group, with the names."""
    metadata: Object = pod.get("metadata") or {}
    return [
        (f"{kind} {key}", str(found[key]))
        for key in GROUP_NAME_KEYS
        for kind, found in (
            ("annotation", metadata.get("annotations") or {}),
            ("label", metadata.get("labels") or {}),
        )
        if found.get(key)
    ]


def _conflicts(named: list[tuple[str, str]], native: str) -> Iterator[str]:
    for where, name in named:
        if not is_group_name(name):
            yield f"{where} is {quoted(name)}: expected the name of a PodGroup"
    if len(dict.fromkeys(name for _, name in named)) > 1:
        listed = " and ".join(f"{where} is {quoted(name)}" for where, name in named)
        yield f"{listed}: a pod is in one PodGroup; write the same name, or only one of them"
    if native and named:
        where, name = named[0]
        yield (
            f"spec.schedulingGroup names PodGroup {quoted(native)} of Kubernetes, and {where} "
            f"names {quoted(name)} of Volcano: a pod is in one PodGroup; leave one of them out"
        )


def _of_owner(pod: Object, least: int, findings: AnnotationFindings) -> JoinedGroup:
    metadata: Object = pod.get("metadata") or {}
    if job_set := str((metadata.get("labels") or {}).get(JOB_SET_UID) or ""):
        return _owned(job_set, JOB_SET_UID, findings)
    references: list[Object] = metadata.get("ownerReferences") or []
    owner = next((one for one in references if one.get("controller")), None)
    if owner is None:
        findings.errors.append(
            f'annotation {GANG_ENABLED} is "true", and the pod has no owner for which a PodGroup '
            f"could be made: name one with annotation {GROUP_NAME_KEYS[0]}, or create the pod by a "
            "Job"
        )
        return NO_GROUP
    is_job = owner.get("kind") == _JOB[1] and str(owner.get("apiVersion")).startswith(_JOB[0])
    if not is_job and not least:
        findings.errors.append(
            f'annotation {GANG_ENABLED} is "true", and {owner.get("kind")} "{owner.get("name")}" '
            "does not say how many pods it has at the same time, as a Job does: state "
            f"{GANG_MIN_MEMBERS}"
        )
    where = f'the uid of the owner, {owner.get("kind")} "{owner.get("name")}",'
    return _owned(str(owner.get("uid") or ""), where, findings)


def _owned(uid: str, where: str, findings: AnnotationFindings) -> JoinedGroup:
    """The group for an owner's UID. ``where``: the UID's place in the pod, for error texts."""
    name = owned_name(uid)
    if is_group_name(name):
        return JoinedGroup(name, is_owned=True)
    findings.errors.append(f"{where} is {quoted(uid)}: expected a UID, such as Kubernetes writes")
    return NO_GROUP


def _min_members(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_MEMBERS:
        raise ValueError(f"expected a whole number from 1 to {MAX_MEMBERS}")
    return int(text)


def short_timeout(timeout_s: float) -> tuple[str, ...]:
    """A warning that a deadline is too short, if it is."""
    if not 0 < timeout_s < MIN_TIMEOUT_S:
        return ()
    shortest = f"{MIN_TIMEOUT_S:.0f}s"
    return (
        f"annotation {GANG_TIMEOUT} is less than {shortest}, and counts as {shortest}: the pods of "
        "a group need that long to be bound",
    )


def _timeout(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise ValueError('expected a time above zero and up to 30d, such as "10m"')
    return seconds


def _loss_policy(text: str) -> str:
    if text not in (LOSS_ENDS, LOSS_KEEPS):
        raise ValueError(f'expected "{LOSS_ENDS}" or "{LOSS_KEEPS}"')
    return text
