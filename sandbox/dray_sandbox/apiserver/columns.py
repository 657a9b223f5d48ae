"""The columns of `kubectl get`: per kind, and from a CRD's additionalPrinterColumns."""

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .resources import ApiResource
from .status import Object


@dataclass(frozen=True)
class TableColumn:
    """One column; `priority` above 0 shows only with `-o wide`."""

    name: str
    cell: Callable[[Object], Any]
    kind: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def age(timestamp: str | None) -> str:
    """The age in kubectl's form: `45s`, `3m10s`, `2h5m`, `3d`."""
    if not timestamp:
        return "<unknown>"
    then = datetime.datetime.fromisoformat(timestamp)
    seconds = int((datetime.datetime.now(datetime.UTC) - then).total_seconds())
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    return f"{days}d"


def _created(item: Object) -> str:
    return age(item["metadata"].get("creationTimestamp"))


NAME = TableColumn("Name", lambda item: item["metadata"]["name"], format="name")
_AGE = TableColumn("Age", _created)


def _status(item: Object) -> Object:
    return item.get("status") or {}


def _spec(item: Object) -> Object:
    return item.get("spec") or {}


def _ready(pod: Object) -> str:
    statuses = _status(pod).get("containerStatuses") or []
    ready = sum(bool(status.get("ready")) for status in statuses)
    return f"{ready}/{len(_spec(pod).get('containers') or [])}"


def _restarts(pod: Object) -> int:
    return sum(s.get("restartCount", 0) for s in _status(pod).get("containerStatuses") or [])


def _pod_status(pod: Object) -> str:
    status = _status(pod)
    text = status.get("reason") or status.get("phase", "Unknown")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        terminated = (container.get("state") or {}).get("terminated") or {}
        text = waiting.get("reason") or terminated.get("reason") or text
    return "Terminating" if "deletionTimestamp" in pod["metadata"] else text


def _or_none(value: Any) -> str:
    return str(value) if value else "<none>"


def _node_status(node: Object) -> str:
    conditions = {c.get("type"): c.get("status") for c in _status(node).get("conditions") or []}
    texts = {"True": "Ready", "False": "NotReady", "Unknown": "NotReady"}
    text = texts.get(conditions.get("Ready", ""), "Unknown")
    return text + (",SchedulingDisabled" if _spec(node).get("unschedulable") else "")


def _roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or "<none>"


def _address(node: Object, kind: str) -> str:
    for address in _status(node).get("addresses") or []:
        if address.get("type") == kind:
            return str(address.get("address"))
    return "<none>"


def _info(name: str) -> Callable[[Object], str]:
    return lambda node: (_status(node).get("nodeInfo") or {}).get(name, "")


def _claim_state(claim: Object) -> str:
    status, states = _status(claim), []
    deleting = "deletionTimestamp" in claim["metadata"]
    if deleting:
        states.append("deleted")
    if not status.get("allocation"):
        return ",".join(states or ["pending"])
    states.append("allocated")
    if status.get("reservedFor"):
        states.append("reserved")
    return ",".join(states)


def _last_seen(event: Object) -> str:
    series = event.get("series") or {}
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    seen = series.get("lastObservedTime") or last or event.get("eventTime")
    return age(seen or event["metadata"].get("creationTimestamp"))


def _about(event: Object) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_EVENT = (
    TableColumn("Last Seen", _last_seen),
    TableColumn("Type", lambda e: e.get("type", "")),
    TableColumn("Reason", lambda e: e.get("reason", "")),
    TableColumn("Object", _about),
    TableColumn("Subobject", lambda e: (e.get("involvedObject") or {}).get("fieldPath", ""),
           priority=1),
    TableColumn("Source", lambda e: e.get("reportingComponent")
           or (e.get("source") or {}).get("component", ""), priority=1),
    TableColumn("Message", lambda e: str(e.get("message") or e.get("note") or "").strip()),
    TableColumn("First Seen", lambda e: age(e.get("firstTimestamp") or e.get("eventTime")),
           priority=1),
    TableColumn("Count", lambda e: str(e.get("count") or 1), priority=1),
    TableColumn("Name", lambda e: e["metadata"]["name"], priority=1, format="name"),
)  # fmt: skip
_POD = (
    NAME,
    TableColumn("Ready", _ready),
    TableColumn("Status", _pod_status),
    TableColumn("Restarts", lambda pod: str(_restarts(pod))),
    _AGE,
    TableColumn("IP", lambda pod: _or_none(_status(pod).get("podIP")), priority=1),
    TableColumn("Node", lambda pod: _or_none(_spec(pod).get("nodeName")), priority=1),
    TableColumn(
        "Nominated Node", lambda pod: _or_none(_status(pod).get("nominatedNodeName")), priority=1
    ),
    TableColumn("Readiness Gates", lambda pod: "<none>", priority=1),
)
_NODE = (
    NAME,
    TableColumn("Status", _node_status),
    TableColumn("Roles", _roles),
    _AGE,
    TableColumn("Version", _info("kubeletVersion")),
    TableColumn("Internal-IP", lambda node: _address(node, "InternalIP"), priority=1),
    TableColumn("External-IP", lambda node: _address(node, "ExternalIP"), priority=1),
    TableColumn("OS-Image", lambda n: _info("osImage")(n) or "<unknown>", priority=1),
    TableColumn("Kernel-Version", lambda n: _info("kernelVersion")(n) or "<unknown>", priority=1),
    TableColumn(
        "Container-Runtime",
        lambda n: _info("containerRuntimeVersion")(n) or "<unknown>",
        priority=1,
    ),
)
_SLICE = (
    NAME,
    TableColumn("Node", lambda item: _spec(item).get("nodeName", "")),
    TableColumn("Driver", lambda item: _spec(item).get("driver", "")),
    TableColumn("Pool", lambda item: (_spec(item).get("pool") or {}).get("name", "")),
    _AGE,
)
_BY_RESOURCE = {
    "/pods": _POD,
    "/nodes": _NODE,
    "/events": _EVENT,
    "/namespaces": (NAME, TableColumn("Status", lambda ns: _status(ns).get("phase", "")), _AGE),
    "/secrets": (
        NAME,
        TableColumn("Type", lambda item: item.get("type", "")),
        TableColumn("Data", lambda item: len(item.get("data") or {}), "integer"),
        _AGE,
    ),
    "/configmaps": (NAME, TableColumn("Data", lambda i: str(len(i.get("data") or {}))), _AGE),
    "resource.k8s.io/resourceclaims": (NAME, TableColumn("State", _claim_state), _AGE),
    "resource.k8s.io/resourceslices": _SLICE,
    "coordination.k8s.io/leases": (
        NAME,
        TableColumn("Holder", lambda lease: _spec(lease).get("holderIdentity", "")),
        _AGE,
    ),
    "apiextensions.k8s.io/customresourcedefinitions": (
        NAME,
        TableColumn("Created At", lambda crd: crd["metadata"]["creationTimestamp"], "date"),
    ),
    "admissionregistration.k8s.io/mutatingwebhookconfigurations": (
        NAME,
        TableColumn("Webhooks", lambda item: len(item.get("webhooks") or []), "integer"),
        _AGE,
    ),
    "admissionregistration.k8s.io/validatingwebhookconfigurations": (
        NAME,
        TableColumn("Webhooks", lambda item: len(item.get("webhooks") or []), "integer"),
        _AGE,
    ),
    "admissionregistration.k8s.io/validatingadmissionpolicies": (
        NAME,
        TableColumn(
            "Validations", lambda item: len(_spec(item).get("validations") or []), "integer"
        ),
        TableColumn("ParamKind", lambda item: "<unset>"),
        _AGE,
    ),
    "admissionregistration.k8s.io/validatingadmissionpolicybindings": (
        NAME,
        TableColumn("PolicyName", lambda item: _spec(item).get("policyName", "")),
        TableColumn("ParamRef", lambda item: "<unset>"),
        _AGE,
    ),
}


def columns_of(resource: ApiResource) -> tuple[TableColumn, ...]:
    """The columns of a resource."""
    if resource.crd is None:
        return _BY_RESOURCE.get(resource.store_key, (NAME, _AGE))
    for version in resource.crd["spec"]["versions"]:
        if version["name"] == resource.version and version.get("additionalPrinterColumns"):
            return (NAME, *(_custom(entry) for entry in version["additionalPrinterColumns"]))
    return (NAME, _AGE)


def _custom(entry: Object) -> TableColumn:
    path, kind = entry["jsonPath"], entry.get("type", "string")

    def cell(item: Object) -> Any:
        found = json_path(item, path)
        if not found:
            return None
        if kind == "date":
            return age(str(found[0]))
        if kind in ("integer", "number", "boolean"):
            return found[0]
        return ",".join(_text(value) for value in found)

    return TableColumn(
        entry["name"],
        cell,
        kind,
        entry.get("priority", 0),
        entry.get("format", ""),
        entry.get("description", ""),
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_STEP = re.compile(
    r"""\.(?P<field>(?:[\w-]|\\.)+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \['(?P<quoted>[^']+)'\]
      | \[\?\(@\.(?P<key>[\w.]+)\s*==\s*['"](?P<value>[^'"]*)['"]\)\]""",
    re.VERBOSE,
)


def json_path(item: Any, path: str) -> list[Any]:
    """Values at a simple JSONPath: fields, indexes, `[*]` and `[?(@.x=="y")]`."""
    values: list[Any] = [item]
    for step in _STEP.finditer(path):
        values = [found for value in values for found in _follow(value, step)]
    return values


def _follow(value: Any, step: re.Match[str]) -> list[Any]:
    field = step["field"] or step["quoted"]
    if field:
        field = field.replace("\\", "")
        return [value[field]] if isinstance(value, dict) and value.get(field) is not None else []
    if not isinstance(value, list):
        return list(value.values()) if step["all"] and isinstance(value, dict) else []
    if step["all"]:
        return value
    if step["index"]:
        index = int(step["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    return [entry for entry in value if str(entry.get(step["key"])) == step["value"]]
