"""Assigns GPUs to containers: ``container-gpus``, ``container-gpu-count``, ``inject-container``.

Without these annotations all containers share the pod's request. ``container-gpus`` gives a
container its own request; fields that it leaves out have the pod's values.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dray.api.names import (
    CONTAINER_GPU_COUNT,
    CONTAINER_GPU_IDS,
    CONTAINER_GPUS,
    GPU_COUNT,
    GPU_MODEL,
    INJECT_CONTAINER,
    MAX_GPUS_PER_CLAIM,
    PREFIX,
    QOS,
)
from dray_webhook.decisions.annotation_values import quoted
from dray_webhook.decisions.annotations import (
    AMOUNTS,
    AnnotationFindings,
    AnnotationReader,
    GpuRequest,
    read_amounts,
    read_cards,
    read_limits,
)

Object = dict[str, Any]
_STATED = (*AMOUNTS, GPU_COUNT, GPU_MODEL, QOS)
"""Annotations that a container can state for itself."""
_MAX_LISTED_NAMES = 20


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One request of the claim: a container's own, or, with an empty name, the shared one."""

    container: str
    asked: GpuRequest


@dataclass(frozen=True, slots=True)
class ContainerAnnotations:
    """What one container states, by annotation name."""

    container: str
    stated: Mapping[str, str]

    @property
    def states_amounts(self) -> bool:
        """Whether it states amounts; otherwise it takes the pod's amounts."""
        return any(name in self.stated for name in AMOUNTS)


@dataclass(frozen=True, slots=True)
class ContainerAssignment:
    """Which containers have their own request, and which share the pod's."""

    own: tuple[ContainerAnnotations, ...] = ()
    sharing: tuple[str, ...] | None = None
    """Containers that share the pod's request; None: all, or those that name the claim."""
    annotation: str = CONTAINER_GPUS
    """The annotation that ``own`` was read from."""

    @property
    def needs_amounts(self) -> bool:
        """Whether a container uses the pod's amounts."""
        return (
            self.sharing is None
            or bool(self.sharing)
            or not all(one.states_amounts for one in self.own)
        )

    def parts(
        self, asked: GpuRequest, findings: AnnotationFindings
    ) -> tuple[ContainerRequest, ...]:
        """The requests, the shared one first; adds errors to ``findings``."""
        parts = [ContainerRequest("", asked)] if self.sharing is None or self.sharing else []
        for own in self.own:
            inside = f'{self.annotation}, container "{own.container}"'
            parts.append(
                ContainerRequest(
                    own.container, _own(AnnotationReader(own.stated, findings, inside), asked)
                )
            )
        if self.own and not self.needs_amounts and asked.states_amounts:
            findings.warnings.append(
                f"nobody gets what the pod itself asks for: every container of {self.annotation} "
                f"states its own amounts, and the others get none; {INJECT_CONTAINER} names who "
                "shares the pod's"
            )
        total = sum(part.asked.count for part in parts)
        if len(parts) > 1 and total > MAX_GPUS_PER_CLAIM:
            findings.errors.append(
                f"{total} GPUs for all containers: expected {MAX_GPUS_PER_CLAIM} at most, the most "
                "devices that Kubernetes allows in one claim"
            )
        return tuple(parts)


def read_containers(
    annotations: Mapping[str, str], spec: Object, findings: AnnotationFindings
) -> ContainerAssignment:
    """Parse the annotations; adds errors to ``findings``."""
    known = [each.get("name", "") for each in containers_of(spec)]
    injected = _injected(annotations, known, findings)
    given = [name for name in (CONTAINER_GPUS, CONTAINER_GPU_COUNT) if name in annotations]
    if len(given) > 1:
        findings.errors.append(
            f"annotations {CONTAINER_GPUS} and {CONTAINER_GPU_COUNT} both say what containers get: "
            f"expected one, and {CONTAINER_GPUS} can say all that the other can"
        )
    if len(given) != 1:
        return ContainerAssignment(sharing=() if given else injected)
    read = _read_own(given[0], annotations[given[0]], known, findings)
    own = tuple(sorted(read, key=lambda one: known.index(one.container)))
    named = [one.container for one in own]
    if injected is not None:
        for name in named:
            if name not in injected:
                findings.errors.append(
                    f'annotation {given[0]}: container "{name}" is given GPUs, but annotation '
                    f"{INJECT_CONTAINER} does not name it: name it there, too, or in neither"
                )
    sharing = tuple(name for name in injected or () if name not in named)
    return ContainerAssignment(own, sharing, given[0])


def containers_of(spec: Object) -> Iterable[Object]:
    """Init containers, including sidecars, and containers."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _own(reader: AnnotationReader, pods: GpuRequest) -> GpuRequest:
    if not any(name in reader.annotations for name in AMOUNTS):
        return read_cards(reader, pods)
    inherited = replace(
        read_amounts(reader),
        count=pods.count,
        model=pods.model,
        qos=pods.qos,
        expression=pods.expression,
        prefer=pods.prefer,
        placement=pods.placement,
        topology=pods.topology,
    )
    return read_limits(reader, read_cards(reader, inherited))


def _injected(
    annotations: Mapping[str, str], known: Sequence[str], findings: AnnotationFindings
) -> tuple[str, ...] | None:
    text = annotations.get(INJECT_CONTAINER)
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            findings.errors.append(
                f"annotation {INJECT_CONTAINER} is {quoted(text)}: {_no_container(name, known)}"
            )
    return names


def _read_own(
    annotation: str, text: str, known: Sequence[str], findings: AnnotationFindings
) -> Iterable[ContainerAnnotations]:
    try:
        entries = _parsed(annotation, text)
    except ValueError as error:
        findings.errors.append(f"annotation {annotation} is {quoted(text)}: {error}")
        return
    for name, value in entries:
        faults = [] if name in known else [_no_container(name, known)]
        stated: Mapping[str, str] = {}
        try:
            stated = _stated(annotation, value)
        except ValueError as error:
            faults.append(str(error))
        findings.errors += [
            f"annotation {annotation}, container {quoted(name)}: {fault}" for fault in faults
        ]
        if not faults:
            yield ContainerAnnotations(name, stated)


def _parsed(annotation: str, text: str) -> list[tuple[str, Any]]:
    example = '{"app": 1}' if annotation == CONTAINER_GPU_COUNT else '{"app": {"gpu-count": 1}}'
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, _Pairs) or not found:
        raise ValueError(f"expected a JSON object with a field per container, such as {example}")
    if twice := _twice(found):
        raise ValueError(f"container {quoted(twice)} is named more than once")
    return found


class _Pairs(list[tuple[str, Any]]):
    """The fields of a JSON object as they were written, including repeated ones."""


def _twice(pairs: _Pairs) -> str:
    names = [name for name, _ in pairs]
    return next((name for name in names if names.count(name) > 1), "")


def _stated(annotation: str, value: Any) -> Mapping[str, str]:
    """A container's values by annotation. Raises ValueError with what is expected."""
    if not isinstance(value, _Pairs):
        if isinstance(value, list):
            raise ValueError(
                "expected what the container asks for, not a list: which cards it got is written "
                f"by dray, to {CONTAINER_GPU_IDS}"
            )
        return {GPU_COUNT: _text(value, "a number of GPUs")}
    if annotation == CONTAINER_GPU_COUNT:
        raise ValueError(f"expected a number of GPUs; use {CONTAINER_GPUS} to say more")
    if twice := _twice(value):
        raise ValueError(f"{twice} is named more than once")
    if not value:
        raise ValueError("expected what the container asks for; leave it out to give it nothing")
    short = {name.removeprefix(PREFIX): name for name in _STATED}
    for field, _ in value:
        if field not in short:
            raise ValueError(f"{quoted(field)} is not known there: expected {', '.join(short)}")
    return {short[field]: _text(found, f"a value of {field}") for field, found in value}


def _text(value: Any, what: str) -> str:
    """A value as text; numbers and booleans need no quotes in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"expected {what}: a text, a number, true or false")


def _no_container(name: str, known: Sequence[str]) -> str:
    names = ", ".join(f'"{each}"' for each in known[:_MAX_LISTED_NAMES])
    return f"the pod has no container {quoted(name)}; expected one of: {names}"
