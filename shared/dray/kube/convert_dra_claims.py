"""ResourceClaims (resource.k8s.io/v1) as `dray.api.dra` values, and allocations back."""

from collections.abc import Iterator
from typing import Any

from dray.api.claims import Constraint
from dray.api.devices import OpaqueConfig
from dray.api.dra.asks import Ask, Claim, DeviceToleration, Holding, Request
from dray.api.dra.nodes import NodeSelector, Requirement, Term
from dray.api.dra.results import AllocationResult, DeviceResult
from dray.kube.convert_dra_slices import configs_from, selectors_from
from dray.kube.dra_fields import JsonFields

Json = dict[str, Any]


def claim_from(obj: Any, path: str = "claim") -> Claim:
    """A ResourceClaim to be allocated; its status is not read.

    Absent ``allocationMode`` and ``count`` mean one device, as the API server's defaults say.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes, or no quantity.
    """
    fields = JsonFields(obj, path)
    metadata, devices = fields.child("metadata"), fields.child("spec").child("devices")
    return Claim(
        namespace=metadata.text("namespace"),
        name=metadata.text("name"),
        uid=metadata.text("uid"),
        requests=requests_from(devices),
        constraints=tuple(_constraint(entry) for entry in devices.children("constraints")),
        config=configs_from(devices, "FromClaim"),
    )


def requests_from(devices: JsonFields) -> tuple[Request, ...]:
    """The requests of ``spec.devices``.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes, or no quantity.
    """
    return tuple(_request(entry) for entry in devices.children("requests"))


def tolerations_from(within: JsonFields) -> tuple[DeviceToleration, ...]:
    """The ``tolerations`` of a request, or of its result."""
    return tuple(_toleration(one) for one in within.children("tolerations"))


def holdings_from(obj: Any, path: str = "claim") -> Iterator[Holding]:
    """The devices that a ResourceClaim holds, by its status.

    Raises:
        InvalidInputError: a field is of another type than in Kubernetes, or no quantity.
    """
    allocation = JsonFields(obj, path).child("status").child("allocation")
    for result in allocation.child("devices").children("results"):
        yield Holding(
            driver=result.text("driver"),
            pool=result.text("pool"),
            device=result.text("device"),
            admin_access=bool(result.flag("adminAccess")),
            is_share="shareID" in result,
            consumed=(
                result.quantities("consumedCapacity") if "consumedCapacity" in result else None
            ),
        )


def allocation_to(result: AllocationResult) -> Json:
    """An ``AllocationResult`` as ``status.allocation`` takes it."""
    devices: Json = {"results": [_result_to(one) for one in result.devices]}
    if result.config:
        devices["config"] = [_config_to(one) for one in result.config]
    written: Json = {"devices": devices}
    if result.node_selector is not None:
        written["nodeSelector"] = node_selector_to(result.node_selector)
    return written


def _request(entry: JsonFields) -> Request:
    return Request(
        name=entry.text("name"),
        exactly=_ask(entry.child("exactly"), entry.text("name")) if "exactly" in entry else None,
        first_available=tuple(
            _ask(sub, sub.text("name")) for sub in entry.children("firstAvailable")
        ),
    )


def _ask(entry: JsonFields, name: str) -> Ask:
    mode = entry.text("allocationMode") or "ExactCount"
    count = entry.whole("count", 1 if mode == "ExactCount" else 0)
    return Ask(
        name=name,
        device_class=entry.text("deviceClassName"),
        selectors=selectors_from(entry),
        mode=mode,
        count=count or 0,
        admin_access=entry.flag("adminAccess"),
        tolerations=tolerations_from(entry),
        capacity=entry.child("capacity").quantities("requests") if "capacity" in entry else None,
        derived_attributes=tuple(one.text("name") for one in entry.children("derivedAttributes")),
    )


def _toleration(entry: JsonFields) -> DeviceToleration:
    return DeviceToleration(
        key=entry.text("key"),
        operator=entry.text("operator"),
        value=entry.text("value"),
        effect=entry.text("effect"),
        seconds=entry.whole("tolerationSeconds"),
    )


def _constraint(entry: JsonFields) -> Constraint:
    return Constraint(
        requests=entry.texts("requests"),
        match_attribute=entry.text("matchAttribute") or None,
        distinct_attribute=entry.text("distinctAttribute") or None,
    )


def _result_to(result: DeviceResult) -> Json:
    written: Json = {
        "request": result.request,
        "driver": result.id.driver,
        "pool": result.id.pool,
        "device": result.id.device,
    }
    optional: Json = {
        "adminAccess": result.admin_access,
        "tolerations": [toleration_to(one) for one in result.tolerations],
        "bindingConditions": list(result.binding_conditions),
        "bindingFailureConditions": list(result.binding_failure_conditions),
        "shareID": result.share_id,
        "consumedCapacity": dict(result.consumed),
    }
    return written | {name: value for name, value in optional.items() if value}


def toleration_to(toleration: DeviceToleration) -> Json:
    """A toleration, as stated."""
    stated: Json = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    written = {name: value for name, value in stated.items() if value}
    if toleration.seconds is not None:
        written["tolerationSeconds"] = toleration.seconds
    return written


def _config_to(config: OpaqueConfig) -> Json:
    written: Json = {"source": config.source}
    if config.requests:
        written["requests"] = list(config.requests)
    return written | {"opaque": {"driver": config.driver, "parameters": config.parameters}}


def node_selector_to(selector: NodeSelector) -> Json:
    """A ``NodeSelector``."""
    return {"nodeSelectorTerms": [_term_to(term) for term in selector.terms]}


def _term_to(term: Term) -> Json:
    parts = {"matchExpressions": term.expressions, "matchFields": term.fields}
    return {name: [_requirement_to(one) for one in part] for name, part in parts.items() if part}


def _requirement_to(requirement: Requirement) -> Json:
    written: Json = {"key": requirement.key, "operator": requirement.operator}
    return written | ({"values": list(requirement.values)} if requirement.values else {})
