"""A pod's shape: the whole ``ResourceClaimTemplateSpec`` derived from its base template.

One request of the base is completed with count, selectors and capacities, once for every
container that has a request of its own; its other requests, constraints, labels and config are
kept. Equal shapes have equal canonical JSON, and so one derived template.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

import msgspec

from dray.cel.environment import Environment
from dray.domain.devices import Taint, Toleration
from dray.domain.errors import InvalidInputError
from dray.domain.json_codec import MAX_NESTING, decode
from dray.domain.names import (
    DERIVED_FROM_LABEL,
    DEVICE_CLASS,
    DRIVER,
    GPU_REQUEST,
    OWNER_DRAY,
    OWNER_TAINT,
    POOL_LABEL,
    PREFIX,
    TEMPLATE_LABEL,
    qualified,
)
from dray.domain.pods import Pool
from dray.messages.facts import TemplateObserved
from dray_webhook.completing import Form, Wanted, completed, parameters
from dray_webhook.selectors import refusal

Object = dict[str, Any]
GENERATOR_VERSION = "2"
GENERATOR_LABEL = PREFIX + "shape-version"
"""On derived claims: the rules by which their shape was computed."""
OWNER_TAINT_OF_DEVICES = Taint(OWNER_TAINT, OWNER_DRAY)
MOST_ENTRIES = 32
"""Requests, constraints and config entries of a claim, selectors of a request (types.go)."""
LONGEST_SHAPE = 256 * 1024
"""Bytes; the API server refuses more annotations on one pod."""
_LISTS = ("requests", "constraints", "config")
HASH_DIGITS = 10
_ANYTHING = msgspec.json.Decoder[Any]()


class UnusableBaseError(InvalidInputError):
    """The base template can't be completed."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A derived ``ResourceClaimTemplateSpec``, and who is to refer to what in it."""

    content: Object
    requests: Mapping[str, tuple[str, ...]]
    """By container, empty for the shared one: names of the requests that were completed."""
    others: tuple[str, ...]
    """The base's other requests, which are for all containers."""
    text: str
    """The content as canonical JSON."""


def derive(base: TemplateObserved, wanted: Sequence[Wanted], pool: Pool, form: Form) -> Shape:
    """The shape of what is ``wanted``, which is at least one request.

    Raises:
        UnusableBaseError: the base has no request to complete, or one that can't be.
    """
    spec = copy.deepcopy(base.spec.get("spec") or {})
    devices = spec.setdefault("devices", {})
    requests = devices.get("requests") or []
    where = f'ResourceClaimTemplate "{base.namespace}/{base.name}"'
    refuse_owner_toleration(requests, where)
    refuse_unreadable(requests, where, form.language)
    index = _to_complete(requests, where)
    original = requests[index]
    others = tuple(request["name"] for request in requests if request is not original)
    names = dict[str, tuple[str, ...]]()
    made, selectors = list[Object](), list[Object]()
    for one in wanted:
        taken = (*others, *(request["name"] for request in made))
        copies = completed(original, one, form, taken)
        selectors = max(selectors, copies[0]["exactly"]["selectors"], key=len)
        names[one.container] = tuple(copy["name"] for copy in copies)
        made += copies
    requests[index : index + 1] = made
    every = [request["name"] for request in made]
    if every != [original["name"]]:
        _rename_references(devices, original["name"], every)
    for one in wanted:
        _finish(devices, one, names[one.container], pool, form)
    devices["requests"] = requests
    _refuse_too_many(devices, selectors, sum(one.asked.count for one in wanted), where)
    content = {"metadata": _metadata(base, pool), "spec": spec}
    return Shape(content, names, others, _canonical(content, where))


def _finish(devices: Object, wanted: Wanted, names: Sequence[str], pool: Pool, form: Form) -> None:
    """Constraints and configuration of one request, or of its copies."""
    if len(names) > 1:
        _tell_apart(devices, names)
    if fields := parameters(wanted, pool, form):
        opaque = {"driver": DRIVER, "parameters": fields}
        devices.setdefault("config", []).append({"requests": list(names), "opaque": opaque})


def _refuse_too_many(devices: Object, selectors: Sequence[Object], count: int, where: str) -> None:
    lists = {f"device {name}": devices.get(name) or () for name in _LISTS}
    for what, entries in {**lists, "selectors": selectors}.items():
        if len(entries) > MOST_ENTRIES:
            raise UnusableBaseError(
                f"{where} and {count} GPUs make {len(entries)} {what}: "
                f"expected {MOST_ENTRIES} at most"
            )


def _canonical(content: Object, where: str) -> str:
    """The one text of a shape's content."""

    def refuse(_: object) -> Never:
        raise UnusableBaseError(
            f"{where}: a config entry is nested more than {MAX_NESTING} levels deep: dray can't "
            "put it on a pod; make it shallower"
        )

    # What was kept as text for its many containers is as good as any other.
    plain = decode(msgspec.json.encode(content), _ANYTHING)
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=refuse
    )


def derived_name(base: str, shape_text: str) -> str:
    """``<base>-<first 10 hex digits of SHA-256>``."""
    return f"{base}-{hashlib.sha256(shape_text.encode()).hexdigest()[:HASH_DIGITS]}"


def refuse_owner_toleration(requests: Sequence[Object], where: str) -> None:
    """Raise UnusableBaseError if a request of our class tolerates the owner taint: then
    kube-scheduler could allocate what dray decides about."""
    for name, entry in _ours(requests):
        for toleration in entry.get("tolerations") or ():
            if covers_owner_taint(toleration):
                raise UnusableBaseError(
                    f'{where}: request "{name}" tolerates {json.dumps(toleration)}, which covers '
                    f"the device taint {OWNER_TAINT}={OWNER_DRAY}: no claim may, because it keeps "
                    "kube-scheduler from allocating dray's devices; remove the toleration"
                )


def refuse_unreadable(requests: Sequence[Object], where: str, language: Environment) -> None:
    """Raise UnusableBaseError for a selector, of any class, that is none in ``language``."""
    for name, entry in entries(requests):
        for selector in entry.get("selectors") or ():
            if why := refusal((selector.get("cel") or {}).get("expression", ""), language):
                raise UnusableBaseError(
                    f'{where}: a selector of request "{name}" can\'t be used: {why}'
                )


def covers_owner_taint(toleration: Object) -> bool:
    """Whether devices that dray allocates would not be tainted for who has this toleration."""
    return _toleration(toleration).tolerates(OWNER_TAINT_OF_DEVICES)


def _ours(requests: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Every request or subrequest of our class, with the request's name."""
    for name, entry in entries(requests):
        if entry.get("deviceClassName") == DEVICE_CLASS:
            yield name, entry


def entries(requests: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Every request or subrequest, with the request's name."""
    for request in requests:
        for entry in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            yield request.get("name", ""), entry


def _toleration(toleration: Object) -> Toleration:
    return Toleration(
        key=toleration.get("key") or "",
        operator=toleration.get("operator") or "Equal",
        value=toleration.get("value") or "",
        effect=toleration.get("effect") or "",
    )


def _to_complete(requests: Sequence[Object], where: str) -> int:
    """Index of the request named ``gpu-request``, else of the only one of our class."""
    named = [i for i, request in enumerate(requests) if request.get("name") == GPU_REQUEST]
    ours = [
        i
        for i, request in enumerate(requests)
        if (request.get("exactly") or {}).get("deviceClassName") == DEVICE_CLASS
    ]
    candidates = named or ours
    if len(candidates) != 1:
        raise UnusableBaseError(
            f'{where} has no request named "{GPU_REQUEST}" and {len(ours)} of device class '
            f'"{DEVICE_CLASS}": expected one that dray can complete'
        )
    request = requests[candidates[0]]
    exactly = request.get("exactly")
    if not exactly:
        raise UnusableBaseError(
            f'{where}: request "{request.get("name", "")}" must have the form "exactly"'
        )
    if exactly.get("deviceClassName") != DEVICE_CLASS:
        raise UnusableBaseError(
            f'{where}: request "{GPU_REQUEST}" is of device class '
            f'"{exactly.get("deviceClassName", "")}", expected "{DEVICE_CLASS}"'
        )
    if exactly.get("adminAccess"):
        raise UnusableBaseError(
            f'{where}: request "{request["name"]}" has adminAccess, which takes no device'
        )
    if exactly.get("allocationMode") == "All":
        raise UnusableBaseError(
            f'{where}: request "{request["name"]}" has allocationMode All, but annotations say how '
            "many GPUs it gets: put a request for all devices of a node beside it"
        )
    return candidates[0]


def _rename_references(devices: Object, old: str, new: Sequence[str]) -> None:
    """Constraints and config that name the request now name each of its copies."""
    for entry in (*(devices.get("constraints") or ()), *(devices.get("config") or ())):
        if old in (entry.get("requests") or ()):
            others = [name for name in entry["requests"] if name != old]
            entry["requests"] = [*others, *new]


def _tell_apart(devices: Object, names: Sequence[str]) -> None:
    distinct = {"requests": list(names), "distinctAttribute": qualified("uuid")}
    devices["constraints"] = [*(devices.get("constraints") or ()), distinct]


def _metadata(base: TemplateObserved, pool: Pool) -> Object:
    metadata = copy.deepcopy(base.spec.get("metadata") or {})
    labels = {
        **(metadata.get("labels") or {}),
        POOL_LABEL: pool.name,
        DERIVED_FROM_LABEL: base.name,
        TEMPLATE_LABEL: "true",
        GENERATOR_LABEL: GENERATOR_VERSION,
    }
    # No annotations: up to 1.36 kube-controller-manager writes its own into the one map that its
    # workers share for a template, and dies of it ("concurrent map writes", resourceclaim
    # controller, handleClaim) when many pods come at once. 1.37 clones the map.
    return {"labels": labels}
