"""A pod's shape: the ``ResourceClaimTemplateSpec`` derived from its base template.

One request of the base gets count, selectors and capacities, once for every container with its own
request; the other requests, constraints, labels and config stay. Equal shapes have equal canonical
JSON, and so the same derived template.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

import msgspec

from dray.api.devices import Taint, Toleration
from dray.api.errors import InvalidInputError
from dray.api.json_codec import MAX_NESTING, decode
from dray.api.names import (
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
from dray.api.pods import Pool
from dray.cel.environment import Environment
from dray.messages.facts import TemplateObserved
from dray_webhook.decisions.request_builder import (
    ApiFeatures,
    RequestInput,
    build_parameters,
    build_requests,
)
from dray_webhook.decisions.selectors import refusal

Object = dict[str, Any]
GENERATOR_VERSION = "2"
_GENERATOR_LABEL = PREFIX + "shape-version"
"""Label of derived claims: the version of the rules that made their shape."""
_OWNER_TAINT_OF_DEVICES = Taint(OWNER_TAINT, OWNER_DRAY)
_MAX_ENTRIES = 32
"""Requests, constraints and config entries of a claim, selectors of a request (types.go)."""
MAX_SHAPE_BYTES = 256 * 1024
"""Bytes; the API server refuses more annotations on one pod."""
_LISTS = ("requests", "constraints", "config")
HASH_DIGITS = 10
_ANYTHING = msgspec.json.Decoder[Any]()


class UnusableBaseError(InvalidInputError):
    """The base template can't be completed."""


@dataclass(frozen=True, slots=True)
class ClaimShape:
    """A derived ``ResourceClaimTemplateSpec``, with its requests by container."""

    content: Object
    requests: Mapping[str, tuple[str, ...]]
    """Names of the requests that were built, by container; an empty name is the shared one."""
    others: tuple[str, ...]
    """The base's other requests, which all containers refer to."""
    text: str
    """The content as canonical JSON."""


def derive(
    base: TemplateObserved, wanted: Sequence[RequestInput], pool: Pool, form: ApiFeatures
) -> ClaimShape:
    """The shape for at least one ``wanted`` request.

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
        copies = build_requests(original, one, form, taken)
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
    return ClaimShape(content, names, others, _canonical(content, where))


def shape_without_devices(pool: Pool) -> str:
    """The canonical JSON of the shape of a pod without GPUs: its claim asks for no device."""
    content = {"metadata": {"labels": {POOL_LABEL: pool.name}}, "spec": {"devices": {}}}
    return _canonical(content, "")


def _finish(
    devices: Object, wanted: RequestInput, names: Sequence[str], pool: Pool, form: ApiFeatures
) -> None:
    """Add constraints and configuration of one request, or of its copies."""
    if len(names) > 1:
        _require_distinct_devices(devices, names)
    if fields := build_parameters(wanted, pool, form):
        opaque = {"driver": DRIVER, "parameters": fields}
        devices.setdefault("config", []).append({"requests": list(names), "opaque": opaque})


def _refuse_too_many(devices: Object, selectors: Sequence[Object], count: int, where: str) -> None:
    lists = {f"device {name}": devices.get(name) or () for name in _LISTS}
    for what, entries in {**lists, "selectors": selectors}.items():
        if len(entries) > _MAX_ENTRIES:
            raise UnusableBaseError(
                f"{where} and {count} GPUs make {len(entries)} {what}: "
                f"expected {_MAX_ENTRIES} at most"
            )


def _canonical(content: Object, where: str) -> str:
    """The canonical JSON of a shape's content."""

    def refuse(_: object) -> Never:
        raise UnusableBaseError(
            f"{where}: a config entry is nested more than {MAX_NESTING} levels deep: dray can't "
            "put it on a pod; make it shallower"
        )

    # Decodes parts that were kept as raw text because of their many containers.
    plain = decode(msgspec.json.encode(content), _ANYTHING)
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=refuse
    )


def derived_name(base: str, shape_text: str) -> str:
    """``<base>-<first 10 hex digits of SHA-256>``."""
    return f"{base}-{hashlib.sha256(shape_text.encode()).hexdigest()[:HASH_DIGITS]}"


def refuse_owner_toleration(requests: Sequence[Object], where: str) -> None:
    """Raise UnusableBaseError if a request of dray's class tolerates the owner taint.

    kube-scheduler could then allocate dray's devices.
    """
    for name, entry in _ours(requests):
        for toleration in entry.get("tolerations") or ():
            if covers_owner_taint(toleration):
                raise UnusableBaseError(
                    f'{where}: request "{name}" tolerates {json.dumps(toleration)}, which covers '
                    f"the device taint {OWNER_TAINT}={OWNER_DRAY}: no claim may, because it keeps "
                    "kube-scheduler from allocating dray's devices; remove the toleration"
                )


def refuse_unreadable(requests: Sequence[Object], where: str, language: Environment) -> None:
    """Raise UnusableBaseError for a selector that is not valid in ``language``."""
    for name, entry in entries(requests):
        for selector in entry.get("selectors") or ():
            if why := refusal((selector.get("cel") or {}).get("expression", ""), language):
                raise UnusableBaseError(
                    f'{where}: a selector of request "{name}" can\'t be used: {why}'
                )


def covers_owner_taint(toleration: Object) -> bool:
    """Whether the toleration covers the taint of devices that dray allocates."""
    return _toleration(toleration).tolerates(_OWNER_TAINT_OF_DEVICES)


def _ours(requests: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Every request or subrequest of dray's class, with the request's name."""
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
    """Index of the request named ``gpu-request``, else of the only one of dray's class."""
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
            "many GPUs it gets: put the request for all devices of a node into another request"
        )
    return candidates[0]


def _rename_references(devices: Object, old: str, new: Sequence[str]) -> None:
    """Make constraints and config that name the request name each of its copies."""
    for entry in (*(devices.get("constraints") or ()), *(devices.get("config") or ())):
        if old in (entry.get("requests") or ()):
            others = [name for name in entry["requests"] if name != old]
            entry["requests"] = [*others, *new]


def _require_distinct_devices(devices: Object, names: Sequence[str]) -> None:
    distinct = {"requests": list(names), "distinctAttribute": qualified("uuid")}
    devices["constraints"] = [*(devices.get("constraints") or ()), distinct]


def _metadata(base: TemplateObserved, pool: Pool) -> Object:
    metadata = copy.deepcopy(base.spec.get("metadata") or {})
    labels = {
        **(metadata.get("labels") or {}),
        POOL_LABEL: pool.name,
        DERIVED_FROM_LABEL: base.name,
        TEMPLATE_LABEL: "true",
        _GENERATOR_LABEL: GENERATOR_VERSION,
    }
    # No annotations: up to 1.36 the workers of kube-controller-manager write their own into a map
    # that they share per template, and crash ("concurrent map writes", resourceclaim controller,
    # handleClaim) when many pods are created at once. 1.37 clones the map.
    return {"labels": labels}
