"""The doctor's checks of Kubernetes objects."""

import asyncio
import time
from collections import Counter

from dray.api.names import DRIVER, TFLOPS_REQUEST
from dray.kube.convert import claim_from
from dray.kube.ports import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    BIND_REQUESTS,
    CLAIMS,
    CLASSES,
    CRDS,
    NODES,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    TEMPLATES,
    Kube,
    KubeUnavailableError,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_claim_controller.cache.resources import name_of, read
from dray_cli.doctor.certificates import look_at_certificates
from dray_cli.doctor.findings import Finding, checked, since
from dray_cli.doctor.nodes import AREA as NODES_AREA
from dray_cli.doctor.nodes import gpu_nodes
from dray_cli.gpu_inventory import gpus_of
from dray_cli.text import counted
from dray_webhook.decisions.registration import INVALID_TFLOPS, probe_pod

_AREA = "dray on it"
_READ = "objects can be read"
_LOOKED_AT = (CLASSES, POOLS, POLICIES, NODES, SLICES, TEMPLATES, CLAIMS)
_MOST_NAMED = 10
POLICY_NAMES = ("dray-pods", "dray-claims", "dray-templates", "dray-node-agents", "dray-gpu-shares")
"""The ValidatingAdmissionPolicies of the chart (``files/policies.yaml``)."""
_CALLING, _DENIED = "failed calling webhook", "admission webhook"
"""Parts of the API server's error if a webhook does not answer, and if one denies."""


async def look_at_cluster(kube: Kube, namespace: str) -> list[Finding]:
    """Custom resources, device class, webhook, policies, slices and pools, in this order; then
    certificates and nodes."""
    found = await asyncio.gather(
        checked(_AREA, "custom resources", custom_resources(kube)),
        checked(_AREA, f"device class {DRIVER}", device_class_of(kube)),
        checked(_AREA, "webhook", webhook_answers(kube, namespace)),
        checked(_AREA, "admission policies", admission_policies(kube)),
        checked(_AREA, "resource slices", slices_of(kube)),
        checked(_AREA, "GPU pools", _pools_of(kube)),
        checked(_AREA, _READ, unreadable_objects(kube)),
        look_at_certificates(kube),
        checked(NODES_AREA, "all", gpu_nodes(kube)),
    )
    return [finding for part in found for finding in part]


async def unreadable_objects(kube: Kube) -> Finding:
    """Objects with parts that dray needs and can't read. Pods are left out: there may be very
    many."""
    lists = {resource: await _listed(kube, resource) for resource in _LOOKED_AT}
    why = [
        f"{resource.kind} {name_of(obj)} {problem}"
        for resource, objects in lists.items()
        for obj in objects
        if (problem := _unread(resource, obj))
    ]
    if why:
        text = (
            f"{counted(len(why), 'object')} can't be read: devices that they hold stay allocated, "
            "and nothing further is decided about them; correct or delete them"
        )
        return Finding(_AREA, _READ, "broken", text, tuple(why[:_MOST_NAMED]))
    return Finding(_AREA, _READ, "ok", counted(sum(map(len, lists.values())), "object"))


def _unread(resource: Resource, obj: Object) -> str:
    return claim_from(obj).spec.unreadable if resource is CLAIMS else read(resource, obj)[1]


async def _listed(kube: Kube, resource: Resource) -> tuple[Object, ...]:
    try:
        return (await kube.list(resource)).objects
    except NotFoundError:
        return ()


async def custom_resources(kube: Kube) -> Finding:
    """Whether dray's kinds are served."""
    wanted = [f"{kind.plural}.{kind.group}" for kind in (POOLS, POLICIES, BIND_REQUESTS)]
    served = {crd["metadata"]["name"] for crd in (await kube.list(CRDS)).objects}
    missing = [name for name in wanted if name not in served]
    if missing:
        text = f"{', '.join(missing)} missing: apply the files of deploy/helm/dray/crds"
        return Finding(_AREA, "custom resources", "broken", text)
    return Finding(_AREA, "custom resources", "ok", ", ".join(wanted))


async def device_class_of(kube: Kube) -> Finding:
    """Whether the DeviceClass that all claims of dray name exists."""
    try:
        await kube.get(CLASSES, DRIVER)
    except NotFoundError:
        text = "missing: apply deploy/helm/dray/files/deviceclass.yaml"
        return Finding(_AREA, f"device class {DRIVER}", "broken", text)
    return Finding(_AREA, f"device class {DRIVER}", "ok")


async def webhook_answers(kube: Kube, namespace: str) -> Finding:
    """Whether the API server calls the webhook, which must deny an invalid annotation."""
    subject = "webhook"
    try:
        await kube.create(PODS, probe_pod(namespace), namespace, dry_run=True)
    except (RefusedError, KubeUnavailableError) as error:
        if TFLOPS_REQUEST in str(error):
            return Finding(_AREA, subject, "ok", "is called, and denies an invalid annotation")
        if _CALLING not in str(error) and _DENIED not in str(error):
            raise  # The API server itself refused it (no rights), or did not answer.
        if _CALLING in str(error):
            text = f"does not answer, so pods with GPUs can't be created: {error}; does it run?"
            return Finding(_AREA, subject, "broken", text)
        text = f"is registered but did not answer as it should: {error}"
        return Finding(_AREA, subject, "broken", text)
    text = (
        f"a pod with {TFLOPS_REQUEST}: {INVALID_TFLOPS!r} was let through: pods get no GPU; "
        "see whether the webhook's configuration names its address, and whether it runs"
    )
    return Finding(_AREA, subject, "broken", text)


async def admission_policies(kube: Kube) -> Finding:
    """Whether the API server denies later changes of an object's pool and dray's annotations."""
    subject = "admission policies"
    policies = (await kube.list(ADMISSION_POLICIES)).objects
    closed = {one["metadata"]["name"] for one in policies if _fails_closed(one)}
    bindings = (await kube.list(ADMISSION_POLICY_BINDINGS)).objects
    denying = {one["spec"].get("policyName") for one in bindings if _denies(one)}
    missing = [name for name in POLICY_NAMES if name not in closed]
    unbound = [name for name in POLICY_NAMES if name in closed and name not in denying]
    if not missing and not unbound:
        return Finding(_AREA, subject, "ok", ", ".join(POLICY_NAMES))
    faults = [f"{', '.join(missing)} missing or without failurePolicy: Fail"] if missing else []
    faults += [f"{', '.join(unbound)} without a binding that denies"] if unbound else []
    text = (
        f"{'; '.join(faults)}: a pod's or claim's pool and dray's annotations can be changed after "
        "admission; apply deploy/helm/dray/files/policies.yaml"
    )
    return Finding(_AREA, subject, "broken", text)


def _fails_closed(policy: Object) -> bool:
    return bool(policy["spec"].get("failurePolicy", "Fail") == "Fail")


def _denies(binding: Object) -> bool:
    # A binding for some objects only is not the chart's.
    spec = binding["spec"]
    return "Deny" in (spec.get("validationActions") or ()) and not spec.get("matchResources")


async def slices_of(kube: Kube) -> Finding:
    """Check the slices of dray's driver, except those that can't be read."""
    found = (await kube.list(SLICES, field_selector=f"spec.driver={DRIVER}")).objects
    return slices_finding(tuple(one for one in found if not read(SLICES, one)[1]))


def slices_finding(slices: tuple[Object, ...]) -> Finding:
    """What the node-agents have published, and whether each node's pool is whole."""
    subject = "resource slices"
    if not slices:
        text = "none of this driver: see whether a node-agent runs on each node with GPUs"
        return Finding(_AREA, subject, "broken", text)
    pools = sorted({slice_["spec"]["pool"]["name"] for slice_ in slices})
    partial = [pool for pool in pools if not _whole(pool, slices)]
    if partial:
        text = f"incomplete on {', '.join(partial)}: its node-agent is about to write, or is stuck"
        return Finding(_AREA, subject, "lesser", text)
    used = [gpu.name for gpu in gpus_of(slices, ()) if gpu.used_by]
    if used:
        text = (
            f"{counted(len(used), 'GPU')} with processes that no claim explains: dray counts "
            "their memory and compute as free; end them, or take the node out of its pool"
        )
        return Finding(_AREA, subject, "lesser", text, tuple(used[:_MOST_NAMED]))
    devices = sum(len(slice_["spec"].get("devices") or ()) for slice_ in slices)
    text = f"{counted(devices, 'device')} on {counted(len(pools), 'node')}"
    return Finding(_AREA, subject, "ok", text)


def _whole(pool: str, slices: tuple[Object, ...]) -> bool:
    parts = [s["spec"]["pool"] for s in slices if s["spec"]["pool"]["name"] == pool]
    newest = max(part["generation"] for part in parts)
    counted = Counter(part["generation"] for part in parts)[newest]
    wanted: int = next(p["resourceSliceCount"] for p in parts if p["generation"] == newest)
    return counted == wanted


async def _pools_of(kube: Kube) -> list[Finding]:
    """Each GPUPool, by its condition Ready."""
    try:
        pools = (await kube.list(POOLS)).objects
    except NotFoundError:
        return []
    if not pools:
        text = "none: no pod gets a GPU before there is one (docs/user-guide/pools.md)"
        return [Finding(_AREA, "GPU pools", "broken", text)]
    now_unix_s = time.time()
    return [pool_finding(pool, now_unix_s) for pool in pools]


def pool_finding(pool: Object, now_unix_s: float = 0.0) -> Finding:
    """One pool, in the words of its own conditions."""
    subject, status = f"pool {pool['metadata']['name']}", pool.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    ready = conditions.get("Ready", {"status": "Unknown", "message": "no condition Ready yet"})
    if ready.get("reason") == "OwnerChanging":
        return Finding(_AREA, subject, "lesser", f"its owner is being changed: {ready['message']}")
    if ready.get("reason") == "NodesInOtherPools":
        return Finding(_AREA, subject, "broken", f"{ready['message']} (docs/user-guide/pools.md)")
    if ready.get("reason") == "NoNodes":
        text = f"{ready['message']}: its pods wait until there is one (docs/user-guide/pools.md)"
        return Finding(_AREA, subject, "lesser", text)
    served = conditions.get("Served", {})
    if served.get("status") == "False":
        age = since(served.get("lastTransitionTime", ""), now_unix_s)
        return Finding(
            _AREA, subject, "broken", f"served by no allocator{age}: {served['message']}"
        )
    if ready["status"] != "True":
        return Finding(_AREA, subject, "broken", f"not ready: {ready.get('message', '')}")
    gpus, nodes = counted(status.get("gpus", 0), "GPU"), counted(status.get("nodes", 0), "node")
    waiting = counted(status.get("waitingPods", 0), "pod waits", "pods wait")
    unhealthy = status.get("unhealthy", 0)
    health = f" ({unhealthy} unhealthy)" if unhealthy else ""
    text = f"{gpus}{health} on {nodes}, {waiting}"
    if ready.get("reason") == "FirstFit":
        text += "; kube-scheduler allocates, first fit"
    elif ready.get("message"):
        text += f"; {ready['message']}"
    if status.get("servedBy"):
        text += f"; served by {status['servedBy']}"
    silent = conditions.get("NodeAgentsSilent", {})
    if is_silent := silent.get("status") == "True":
        text += f"; {silent['message']}"
    return Finding(_AREA, subject, "lesser" if unhealthy or is_silent else "ok", text)
