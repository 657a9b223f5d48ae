"""ResourceClaims (resource.k8s.io/v1) as domain values, and allocations back."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from dray.api import json_codec
from dray.api.claims import (
    UNREAD,
    AllocatedDevice,
    Allocation,
    Claim,
    ClaimSpec,
    Constraint,
    DeviceRequest,
    DeviceTerms,
    DeviceToleration,
)
from dray.api.devices import DeviceId, OpaqueConfig
from dray.api.errors import DrayError, InvalidInputError
from dray.api.groups import KUBERNETES
from dray.api.names import DECISION, POOL_LABEL, VOID
from dray.api.nodes import (
    NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.api.pods import accounting_claim
from dray.kube.convert_devices import configs_from, node_selector_from, selectors_from
from dray.kube.convert_metadata import (
    LONGEST_ATTEMPT,
    annotation,
    attempt_annotation,
    controlling_pod,
    is_deleting,
    label,
    revision_of,
    time_from,
    time_to,
)
from dray.kube.ports import Object

T = TypeVar("T")
_CLAIM: Final = msgspec.json.Decoder(Claim)
_DEVICE: Final = msgspec.json.Decoder(AllocatedDevice)
_ACCOUNTED: Final = re.compile(accounting_claim(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"))
"""The names of claims that account for a pod, by its UID."""
_ANY_DEVICES: Final = Allocation((AllocatedDevice("", DeviceId("", "", "")),))


UNREADABLE: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    msgspec.MsgspecError,
    DrayError,
)
"""Errors when reading an object whose shape violates its API."""


def claim_from(obj: Object) -> Claim:
    """A ResourceClaim with dray's annotations and label.

    If its spec can't be read, ``spec.unsupported`` says so and the rest of the spec is empty. The
    readable parts of its allocation are used. Unreadable parts of a device's identity are empty,
    see ``DeviceId``.
    """
    try:
        return json_codec.checked(claim_from_fields(obj), _CLAIM)
    except UNREADABLE as error:
        return _readable_part(obj, error)


def why_unreadable(error: Exception) -> str:
    """Why an object can't be read, for people."""
    if isinstance(error, InvalidInputError):
        return f"{UNREAD}{error}"
    return f"{UNREAD}its shape is unknown to dray ({type(error).__name__}: {error})"


def claim_from_fields(obj: Object, spec: ClaimSpec | None = None) -> Claim:
    """A ResourceClaim whose fields have the types of the API. ``spec``: its spec, if it is already
    converted. Raises ``UNREADABLE``."""
    metadata = obj["metadata"]
    status = obj.get("status") or {}
    pod_uid, pod_name = controlling_pod(obj)
    allocation = status.get("allocation")
    if foreign := _why_foreign(metadata["name"], pod_uid):
        spec = ClaimSpec(unsupported=(f"{UNREAD}{foreign}",))
    return Claim(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        resource_version=revision_of(obj),
        pool=label(obj, POOL_LABEL),
        spec=claim_spec_from(obj.get("spec") or {}) if spec is None else spec,
        pod_uid=pod_uid,
        pod_name=pod_name,
        allocation=None if allocation is None else allocation_from(allocation),
        reserved_for=_reserved_for(status),
        decision=_attempt(obj, DECISION),
        void=_attempt(obj, VOID),
        deleting=is_deleting(obj),
        created_unix_s=time_from(metadata.get("creationTimestamp")),
    )


def _why_foreign(name: str, pod_uid: str) -> str:
    """Why a claim with the name of an accounting claim is not one. Empty if it is one, or if it has
    another name."""
    named = _ACCOUNTED.fullmatch(name)
    if named is None or named[1] == pod_uid:
        return ""
    return (
        f"its name is that of the claim by which dray accounts for the GPUs of the pod {named[1]}, "
        "and that pod does not control it: somebody else made it. Delete it, and dray makes its own"
    )


def _readable_part(obj: Object, error: Exception) -> Claim:
    """The readable parts of an otherwise unreadable claim."""
    metadata = obj["metadata"]
    pod_uid, pod_name = _or_else(("", ""), controlling_pod, obj)
    return Claim(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        resource_version=revision_of(obj),
        pool=_or_else("", label, obj, POOL_LABEL),
        spec=ClaimSpec(unsupported=(why_unreadable(error),)),
        pod_uid=pod_uid,
        pod_name=pod_name,
        allocation=_readable_allocation(obj.get("status") or {}),
        reserved_for=_or_else((), _reserved_for, obj.get("status") or {}),
        decision=_or_else(0, _attempt, obj, DECISION),
        void=_or_else(0, _attempt, obj, VOID),
        deleting=is_deleting(obj),
        created_unix_s=_or_else(0.0, time_from, metadata.get("creationTimestamp")),
    )


def _attempt(obj: Object, name: str) -> int:
    text = annotation(obj, name)
    if len(text) > LONGEST_ATTEMPT and text.isdecimal():
        raise InvalidInputError(
            f"annotation {name} has {len(text)} digits, expected {LONGEST_ATTEMPT} at most: only "
            "dray writes it, remove it"
        )
    return attempt_annotation(obj, name)


def _readable_allocation(status: Any) -> Allocation | None:
    """An upper bound for the devices that an unreadable allocation holds."""
    if not isinstance(status, Mapping):
        return _ANY_DEVICES
    if (allocation := status.get("allocation")) is None:
        return None
    node = _or_else("", _only_node, allocation)
    results = _or_else(None, lambda: allocation["devices"]["results"])
    if not isinstance(results, list):
        return replace(_ANY_DEVICES, node=node)
    return Allocation(tuple(_readable_result(entry) for entry in results), node)


def _only_node(allocation: Mapping[str, Any]) -> str:
    selector = node_selector_from(allocation.get("nodeSelector"))
    node: Any = "" if selector is None else selector.only_node
    return node if isinstance(node, str) else ""


def _readable_result(entry: Any) -> AllocatedDevice:
    """A device of an unreadable allocation: the whole device if the amount can't be read."""
    try:
        return json_codec.checked(_result(entry), _DEVICE)
    except UNREADABLE:
        texts = [_text(entry, name) for name in ("driver", "pool", "device")]
        return AllocatedDevice(_text(entry, "request"), DeviceId(*texts))


def _text(entry: Any, name: str) -> str:
    found = entry.get(name) if isinstance(entry, Mapping) else None
    return found if isinstance(found, str) else ""


def _or_else(otherwise: T, read: Callable[..., T], *of: Any) -> T:
    try:
        return read(*of)
    except UNREADABLE:
        return otherwise


def _reserved_for(status: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry["uid"]) for entry in status.get("reservedFor") or ())


def claim_spec_from(spec: Mapping[str, Any]) -> ClaimSpec:
    """``ResourceClaimSpec``. ``unsupported`` names the kinds of requests and constraints that dray
    does not know."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or ()
    constraints = devices.get("constraints") or ()
    return ClaimSpec(
        requests=tuple(map(_request, requests)),
        constraints=tuple(_constraint(entry) for entry in constraints),
        config=configs_from(devices.get("config"), "FromClaim"),
        unsupported=(
            *(
                f"request {entry['name']} is neither exactly nor firstAvailable"
                for entry in requests
                if not (entry.get("exactly") or entry.get("firstAvailable"))
            ),
            *(
                f"constraint {index} of an unknown kind"
                for index, entry in enumerate(constraints)
                if not (entry.get("matchAttribute") or entry.get("distinctAttribute"))
            ),
        ),
    )


def allocation_from(allocation: Mapping[str, Any]) -> Allocation:
    """``status.allocation``. ``node`` is the one node of its node selector, or empty."""
    devices = allocation.get("devices") or {}
    selector = node_selector_from(allocation.get("nodeSelector"))
    node = "" if selector is None else selector.only_node
    return Allocation(
        devices=tuple(_result(entry) for entry in devices.get("results") or ()),
        node=node,
        config=configs_from(devices.get("config"), "FromClaim"),
        selector=None if selector is None or selector.only_node else selector,
    )


def allocation_to(
    allocation: Allocation, *, timestamp_unix_s: float | None = None
) -> dict[str, Any]:
    """The value of ``status.allocation``.

    ``timestamp_unix_s`` becomes ``allocationTimestamp``. It must be set if the server keeps this
    field; otherwise kube-scheduler can't reserve the claim (1.36: "status.allocation: field is
    immutable").
    """
    devices: dict[str, Any] = {"results": [_result_to(entry) for entry in allocation.devices]}
    if allocation.config:
        devices["config"] = [_config_to(entry) for entry in allocation.config]
    value: dict[str, Any] = {"devices": devices}
    if allocation.selector is not None:
        value["nodeSelector"] = _node_selector_to(allocation.selector)
    elif allocation.node:
        field = {"key": NAME_FIELD, "operator": "In", "values": [allocation.node]}
        value["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    if timestamp_unix_s is not None:
        value["allocationTimestamp"] = time_to(timestamp_unix_s)
    return value


class Consumer(NamedTuple):
    """A pod or Kubernetes PodGroup for which a claim is reserved."""

    name: str
    uid: str
    is_group: bool = False

    def to_object(self) -> dict[str, str]:
        """An entry of ``status.reservedFor``."""
        if self.is_group:
            kind = {"apiGroup": KUBERNETES, "resource": "podgroups"}
        else:
            kind = {"resource": "pods"}
        return {**kind, "name": self.name, "uid": self.uid}


def status_to(
    allocation: Allocation,
    *,
    timestamp_unix_s: float | None = None,
    reserved_for: Sequence[Consumer] = (),
) -> dict[str, Any]:
    """A claim's whole ``status``."""
    status: dict[str, Any] = {
        "allocation": allocation_to(allocation, timestamp_unix_s=timestamp_unix_s)
    }
    if reserved_for:
        status["reservedFor"] = [one.to_object() for one in reserved_for]
    return status


def _request(entry: Mapping[str, Any]) -> DeviceRequest:
    if alternatives := entry.get("firstAvailable"):
        found = tuple(_exactly(one["name"], one) for one in alternatives)
        return DeviceRequest(entry["name"], "", first_available=found)
    if exactly := entry.get("exactly"):
        return _exactly(entry["name"], exactly)
    return DeviceRequest(entry["name"], "")


def _exactly(name: str, entry: Mapping[str, Any]) -> DeviceRequest:
    capacity = (entry.get("capacity") or {}).get("requests") or {}
    derived = entry.get("derivedAttributes") or ()
    return DeviceRequest(
        name=name,
        device_class=entry["deviceClassName"],
        selectors=selectors_from(entry.get("selectors")),
        mode=entry.get("allocationMode") or "ExactCount",
        count=int(entry.get("count") or 1),
        capacity={name: str(amount) for name, amount in capacity.items()},
        tolerations=_tolerations(entry),
        admin_access=bool(entry.get("adminAccess")),
        derived_attributes=tuple([one["name"] for one in derived]) if derived else (),
    )


def _tolerations(entry: Mapping[str, Any]) -> tuple[DeviceToleration, ...]:
    """The tolerations of a request or of its result."""
    return tuple(
        [
            DeviceToleration(
                key=one.get("key") or "",
                operator=one.get("operator") or "",
                value=one.get("value") or "",
                effect=one.get("effect") or "",
                seconds=one.get("tolerationSeconds"),
            )
            for one in entry.get("tolerations") or ()
        ]
    )


def _constraint(entry: Mapping[str, Any]) -> Constraint:
    return Constraint(
        requests=tuple(entry.get("requests") or ()),
        match_attribute=entry.get("matchAttribute"),
        distinct_attribute=entry.get("distinctAttribute"),
    )


def _result(entry: Mapping[str, Any]) -> AllocatedDevice:
    consumed = entry.get("consumedCapacity") or {}
    terms = DeviceTerms(
        tolerations=_tolerations(entry),
        binding_conditions=tuple(entry.get("bindingConditions") or ()),
        binding_failure_conditions=tuple(entry.get("bindingFailureConditions") or ()),
    )
    return AllocatedDevice(
        request=entry["request"],
        id=DeviceId(entry["driver"], entry["pool"], entry["device"]),
        share_id=entry.get("shareID"),
        consumed={name: str(amount) for name, amount in consumed.items()},
        admin_access=bool(entry.get("adminAccess")),
        terms=terms if terms != DeviceTerms() else None,
    )


def _result_to(device: AllocatedDevice) -> dict[str, Any]:
    result: dict[str, Any] = {
        "request": device.request,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
    }
    if device.admin_access:
        result["adminAccess"] = True
    if device.share_id is not None:
        result["shareID"] = device.share_id
    if device.consumed:
        result["consumedCapacity"] = dict(device.consumed)
    if device.terms is not None:
        stated = {
            "tolerations": [_toleration_to(one) for one in device.terms.tolerations],
            "bindingConditions": list(device.terms.binding_conditions),
            "bindingFailureConditions": list(device.terms.binding_failure_conditions),
        }
        result.update((name, value) for name, value in stated.items() if value)
    return result


def _config_to(config: OpaqueConfig) -> dict[str, Any]:
    value: dict[str, Any] = {
        "source": config.source,
        "opaque": {"driver": config.driver, "parameters": config.parameters},
    }
    if config.requests:
        value["requests"] = list(config.requests)
    return value


def _toleration_to(toleration: DeviceToleration) -> dict[str, Any]:
    stated = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    value: dict[str, Any] = {name: text for name, text in stated.items() if text}
    if toleration.seconds is not None:
        value["tolerationSeconds"] = toleration.seconds
    return value


def _node_selector_to(selector: NodeSelector) -> dict[str, Any]:
    return {"nodeSelectorTerms": [_term_to(term) for term in selector.terms]}


def _term_to(term: NodeSelectorTerm) -> dict[str, Any]:
    parts = {"matchExpressions": term.expressions, "matchFields": term.fields}
    return {name: [_requirement_to(one) for one in part] for name, part in parts.items() if part}


def _requirement_to(requirement: NodeSelectorRequirement) -> dict[str, Any]:
    value: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
    return value | ({"values": list(requirement.values)} if requirement.values else {})
