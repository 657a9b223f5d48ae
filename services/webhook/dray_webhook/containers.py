"""Which containers get which GPUs: ``container-gpus``, ``inject-container`` and their kin.

Without them all containers share one request, the pod's. ``container-gpus`` gives a container a
request of its own, in the pod's words; what it leaves out is as the pod says.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dray.domain.names import (
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
from dray_webhook.annotations import (
    AMOUNTS,
    Asked,
    Findings,
    Reader,
    read_amounts,
    read_cards,
    read_limits,
)
from dray_webhook.values import shown

Object = dict[str, Any]
STATED = (*AMOUNTS, GPU_COUNT, GPU_MODEL, QOS)
"""What a container can state of its own."""
MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Part:
    """One request of the claim: a container's own, or, with no name, the one that is shared."""

    container: str
    asked: Asked


@dataclass(frozen=True, slots=True)
class Own:
    """What one container states, by the annotations' names."""

    container: str
    stated: Mapping[str, str]

    @property
    def says_how_much(self) -> bool:
        """Otherwise the pod's amounts are its own."""
        return any(name in self.stated for name in AMOUNTS)


@dataclass(frozen=True, slots=True)
class Containers:
    """Who gets what."""

    own: tuple[Own, ...] = ()
    sharing: tuple[str, ...] | None = None
    """Who shares the pod's request; None: all, or those that refer to the claim themselves."""
    annotation: str = CONTAINER_GPUS
    """The one that ``own`` was read from."""

    @property
    def needs_amounts(self) -> bool:
        """Whether somebody takes what the pod says."""
        return (
            self.sharing is None
            or bool(self.sharing)
            or not all(one.says_how_much for one in self.own)
        )

    def parts(self, asked: Asked, findings: Findings) -> tuple[Part, ...]:
        """The requests, the shared one first; what is wrong in them is added to ``findings``."""
        parts = [Part("", asked)] if self.sharing is None or self.sharing else []
        for own in self.own:
            inside = f'{self.annotation}, container "{own.container}"'
            parts.append(Part(own.container, _own(Reader(own.stated, findings, inside), asked)))
        if self.own and not self.needs_amounts and asked.says_how_much:
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


def read_containers(annotations: Mapping[str, str], spec: Object, findings: Findings) -> Containers:
    """Who gets what; errors are added to ``findings``."""
    known = [each.get("name", "") for each in containers_of(spec)]
    injected = _injected(annotations, known, findings)
    given = [name for name in (CONTAINER_GPUS, CONTAINER_GPU_COUNT) if name in annotations]
    if len(given) > 1:
        findings.errors.append(
            f"annotations {CONTAINER_GPUS} and {CONTAINER_GPU_COUNT} say both what containers get: "
            f"expected one, and {CONTAINER_GPUS} can say all that the other can"
        )
    if len(given) != 1:
        return Containers(sharing=() if given else injected)
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
    return Containers(own, sharing, given[0])


def containers_of(spec: Object) -> Iterable[Object]:
    """Init containers, sidecars among them, and containers."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _own(reader: Reader, pods: Asked) -> Asked:
    if not any(name in reader.annotations for name in AMOUNTS):
        return read_cards(reader, pods)
    beside = replace(
        read_amounts(reader),
        count=pods.count,
        model=pods.model,
        qos=pods.qos,
        expression=pods.expression,
        prefer=pods.prefer,
        placement=pods.placement,
        topology=pods.topology,
    )
    return read_limits(reader, read_cards(reader, beside))


def _injected(
    annotations: Mapping[str, str], known: Sequence[str], findings: Findings
) -> tuple[str, ...] | None:
    text = annotations.get(INJECT_CONTAINER)
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            findings.errors.append(
                f"annotation {INJECT_CONTAINER} is {shown(text)}: {_no_container(name, known)}"
            )
    return names


def _read_own(
    annotation: str, text: str, known: Sequence[str], findings: Findings
) -> Iterable[Own]:
    try:
        entries = _parsed(annotation, text)
    except ValueError as error:
        findings.errors.append(f"annotation {annotation} is {shown(text)}: {error}")
        return
    for name, value in entries:
        faults = [] if name in known else [_no_container(name, known)]
        stated: Mapping[str, str] = {}
        try:
            stated = _stated(annotation, value)
        except ValueError as error:
            faults.append(str(error))
        findings.errors += [
            f"annotation {annotation}, container {shown(name)}: {fault}" for fault in faults
        ]
        if not faults:
            yield Own(name, stated)


def _parsed(annotation: str, text: str) -> list[tuple[str, Any]]:
    example = '{"app": 1}' if annotation == CONTAINER_GPU_COUNT else '{"app": {"gpu-count": 1}}'
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, _Pairs) or not found:
        raise ValueError(f"expected a JSON object with a field per container, such as {example}")
    if twice := _twice(found):
        raise ValueError(f"container {shown(twice)} stands there twice")
    return found


class _Pairs(list[tuple[str, Any]]):
    """The fields of a JSON object as they were written, repeated ones too."""


def _twice(pairs: _Pairs) -> str:
    names = [name for name, _ in pairs]
    return next((name for name in names if names.count(name) > 1), "")


def _stated(annotation: str, value: Any) -> Mapping[str, str]:
    """What a container states. Raises ValueError with what was expected."""
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
        raise ValueError(f"{twice} stands there twice")
    if not value:
        raise ValueError("expected what the container asks for; leave it out to give it nothing")
    short = {name.removeprefix(PREFIX): name for name in STATED}
    for field, _ in value:
        if field not in short:
            raise ValueError(f"{shown(field)} is not known there: expected {', '.join(short)}")
    return {short[field]: _text(found, f"a value of {field}") for field, found in value}


def _text(value: Any, what: str) -> str:
    """Numbers and booleans need no quotes in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"expected {what}: a text, a number, true or false")


def _no_container(name: str, known: Sequence[str]) -> str:
    names = ", ".join(f'"{each}"' for each in known[:MOST_NAMES])
    return f"the pod has no container {shown(name)}; expected one of: {names}"
