"""pods/binding and pods/eviction."""

from dataclasses import replace

from . import budgets, metadata, status
from .admission import Attributes
from .context import Context
from .deletion import DeleteOptions, Deletion
from .operations import Operations, key_of
from .resources import ApiResource
from .rules_pods import scheduled
from .status import Object, bad_request
from .store import Conflict

SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def bind(
    operations: Operations,
    resource: ApiResource,
    namespace: str,
    name: str,
    body: Object,
    context: Context,
) -> Object:
    """Bind a pod to `target.name`: sets nodeName and the PodScheduled condition, once."""
    meta, target = body.get("metadata") or {}, body.get("target") or {}
    if meta.get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind", "Node") not in ("", "Node"):
        kind = status.go_value(target["kind"])
        text = f'target.kind: Unsupported value: {kind}: supported values: "Node", "<empty>"'
        raise _plain(500, text)
    if not target.get("name"):
        raise _plain(500, "target.name: Required value")
    attributes = Attributes(
        operation="CREATE",
        resource=resource,
        namespace=namespace,
        name=name,
        user=context.user,
        obj=body,
        subresource="binding",
        kind=("", "v1", "Binding"),
        dry_run=context.dry_run,
        options=context.options("CreateOptions"),
    )
    changed = await operations.admission.mutate(attributes, lambda obj: obj, context.warnings)
    body = changed or body
    await operations.admission.validate(replace(attributes, obj=body), context.warnings)
    _bind_now(operations, resource, namespace, name, body, context)
    return {**SUCCESS, "code": 201}


def _bind_now(
    operations: Operations,
    resource: ApiResource,
    namespace: str,
    name: str,
    body: Object,
    context: Context,
) -> None:
    pod = operations.existing(resource, namespace, name)
    meta = body.get("metadata") or {}
    _check(pod, name, meta)
    new = scheduled(pod, body["target"]["name"])
    for field in ("annotations", "labels"):
        if meta.get(field):
            new["metadata"].setdefault(field, {}).update(meta[field])
    if not context.dry_run:
        try:
            operations.store.write(key_of(resource, namespace, name), new, pod)
        except Conflict as error:
            raise status.conflict("pods/binding", "", name) from error


def _check(pod: Object, name: str, meta: Object) -> None:
    for wanted, seen, what in (
        (meta.get("uid"), pod["metadata"]["uid"], "UID"),
        (meta.get("resourceVersion"), pod["metadata"]["resourceVersion"], "ResourceVersion"),
    ):
        if wanted and wanted != seen:
            why = (
                f"Precondition failed: {what} in precondition: {wanted}, "
                f"{what} in object meta: {seen}"
            )
            raise status.conflict("pods/binding", "", name, why)
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise status.conflict("pods/binding", "", name, why)
    node = pod["spec"].get("nodeName")
    if node:
        why = f"pod {name} is already assigned to node {status.go_value(node)}"
        raise status.conflict("pods/binding", "", name, why)
    if pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
        raise status.conflict("pods/binding", "", name, why)


async def evict(
    operations: Operations,
    deletion: Deletion,
    resource: ApiResource,
    namespace: str,
    name: str,
    body: Object,
    context: Context,
) -> Object:
    """Evict a pod: a deletion that its disruption budget allows."""
    if (body.get("metadata") or {}).get("name", name) != name:
        raise bad_request("name in URL does not match name in Eviction object")
    wanted = body.get("deleteOptions") or {}
    options = DeleteOptions.read(wanted)
    if wanted.get("dryRun"):
        context = replace(context, dry_run=True)
    budgets.spend(
        operations.store, operations.existing(resource, namespace, name), dry_run=context.dry_run
    )
    if not context.dry_run:
        await operations.update(
            resource, namespace, name, _disrupted, context, subresource="status", patch=True
        )
    await deletion.delete(resource, namespace, name, options, context)
    return {**SUCCESS, "code": 201}


def _disrupted(pod: Object | None) -> Object:
    """The pod with the condition that explains its eviction."""
    if pod is None:
        raise AssertionError("an update has an object")
    status_now = pod.setdefault("status", {})
    others = [c for c in status_now.get("conditions") or [] if c.get("type") != "DisruptionTarget"]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": metadata.now(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status_now["conditions"] = [*others, condition]
    return pod


def _plain(code: int, message: str) -> status.ApiError:
    return status.ApiError(code, "", message)
