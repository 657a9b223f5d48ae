"""The real Kubernetes API, over HTTP."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dray.kube.api_transport import GoneError, PageReader, Transport
from dray.kube.api_watch import NOT_IDENTIFIED, ServerStore, has_revision, is_identified, watch
from dray.kube.convert_metadata import is_revision
from dray.kube.kubeconfig import server_access
from dray.kube.ports import (
    NO_ANNOTATIONS,
    NODES,
    PODS,
    ConflictError,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    Object,
    PatchType,
    RefusedError,
    Resource,
    Transform,
    WatchEvent,
)
from dray.runtime.time_slice import TimeSlice

if TYPE_CHECKING:  # Only services count requests: the commands import no Prometheus client.
    from dray.kube.request_metrics import RequestMetrics

_PAGE: Final = "500"
_RELISTS: Final = 3
_PATCH_TYPES: Final[dict[PatchType, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_UNPROCESSABLE: Final = 422


async def connect(
    kubeconfig: str | None, *, user_agent: str, metrics: "RequestMetrics | None" = None
) -> "KubeApi":
    """The API as the kubeconfig (or the pod's service account) describes it.

    Nothing is sent yet. Raises InvalidInputError if there is no usable configuration.
    """
    access = await server_access(kubeconfig)
    counted = () if metrics is None else (metrics.answered,)
    return KubeApi(Transport(access, user_agent, *counted), user_agent)


class KubeApi:
    """``Kube`` over HTTP."""

    def __init__(self, transport: Transport, manager: str) -> None:
        self._transport = transport
        self._manager = {"fieldManager": manager}
        self._store = ServerStore()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """See ``Kube.get``."""
        return await self._object(resource, "GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
    ) -> Listed:
        """See ``Kube.list``; read in pages."""
        selectors = _selectors(label_selector, field_selector)
        for _ in range(_RELISTS):
            try:
                return await self._pages(resource, resource.path(namespace), selectors, transform)
            except GoneError:
                continue
        raise KubeUnavailableError(
            f"listing {resource.plural}: its pages expired {_RELISTS} times while they were read"
        )

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """See ``Kube.watch``. Waits for a kind that isn't served yet (404)."""

        async def relist() -> Listed:
            return await self.list(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                transform=transform,
            )

        selectors = _selectors(label_selector, field_selector)
        path = resource.path(namespace)
        return watch(self._transport, resource, path, selectors, relist, self._store)

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        """See ``Kube.create``."""
        place = namespace or obj["metadata"].get("namespace", "")
        query = {**self._manager, **({"dryRun": "All"} if dry_run else {})}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self._transport.call("POST", resource.path(place), query=query, body=body)

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """See ``Kube.update``."""
        # Only a part of the managed fields is kept here. Without them, the server keeps its own.
        metadata = {key: one for key, one in obj["metadata"].items() if key != "managedFields"}
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        own = {"apiVersion": resource.api_version, "kind": resource.kind}
        body = {**own, **obj, "metadata": metadata}
        return await self._object(resource, "PUT", path, query=self._manager, body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        kind: PatchType = "merge",
        subresource: str = "",
        timeout_s: float | None = None,
    ) -> Object:
        """See ``Kube.patch``. ``apply`` takes over fields from other managers."""
        query = {**self._manager, **({"force": "true"} if kind == "apply" else {})}
        try:
            return await self._object(
                resource,
                "PATCH",
                resource.path(namespace, name, subresource),
                query=query,
                body=patch,
                content_type=_PATCH_TYPES[kind],
                timeout_s=timeout_s,
            )
        except RefusedError as error:
            if _is_failed_test(patch, error):
                raise ConflictError(f"{error}: a test of the JSON patch failed") from error
            raise

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: int | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """See ``Kube.delete``."""
        preconditions: dict[str, str] = {"uid": uid} if uid else {}
        if resource_version is not None:
            preconditions["resourceVersion"] = str(resource_version)
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        try:
            await self._transport.call("DELETE", resource.path(namespace, name), body=options)
        except NotFoundError:
            return

    async def bind(
        self,
        pod: str,
        namespace: str,
        *,
        uid: str,
        node: str,
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
        resource_version: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See ``Kube.bind``."""
        metadata: Object = {"name": pod, "namespace": namespace, "uid": uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if resource_version is not None:
            metadata["resourceVersion"] = str(resource_version)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": NODES.kind, "name": node},
        }
        path = PODS.path(namespace, pod, "binding")
        await self._transport.call(
            "POST", path, query=self._manager, body=body, timeout_s=timeout_s
        )

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        """See ``Kube.evict``."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._transport.call("POST", PODS.path(namespace, pod, "eviction"), body=body)
        except KubeUnavailableError as error:
            if "disruption budget" in str(error):
                raise ConflictError(str(error)) from error
            raise

    async def version(self) -> str:
        """See ``Kube.version``."""
        answer = await self._transport.call("GET", "/version")
        return str(answer["gitVersion"])

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """See ``Kube.served_versions``."""
        try:
            answer = await self._transport.call("GET", f"/apis/{group}")
        except NotFoundError:
            return ()
        return tuple(served["version"] for served in answer["versions"])

    async def close(self) -> None:
        """See ``Kube.close``."""
        await self._transport.close()

    async def _object(self, resource: Resource, method: str, path: str, **request: Any) -> Object:
        """The object in the server's answer. Raises the errors of ``Transport.call``, and
        KubeUnavailableError if the answer is no such object: the outcome is unknown then."""
        found = await self._transport.call(method, path, **request)
        if not has_revision(found) or not found["metadata"].get("uid"):
            raise KubeUnavailableError(
                f"{method} {path}: the answer is no {resource.kind}, but {str(found)[:200]}: is it "
                "the API server that answers?"
            )
        return found

    async def _pages(
        self,
        resource: Resource,
        path: str,
        selectors: dict[str, str],
        transform: Transform | None,
    ) -> Listed:
        objects: list[Any] = []
        is_whole = True
        time_slice = TimeSlice()
        query = {"limit": _PAGE, **selectors}
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        reader = PageReader(msgspec.json.encode(kind)[:-1] + b",", transform)
        while True:
            page = await self._transport.page(path, query, reader)
            for number, obj in enumerate(page.items):
                if (made := page.made.get(number)) is not None:
                    objects.append(made)
                    continue
                if not is_identified(obj, resource):
                    is_whole = False
                    import structlog  # Slow to import, because of rich

                    where = {"list": path, "item": number, "page": query.get("continue", "")}
                    structlog.get_logger().error(NOT_IDENTIFIED, **where)
                    continue
                # Items of a list lack apiVersion and kind.
                obj.setdefault("apiVersion", resource.api_version)
                obj.setdefault("kind", resource.kind)
                objects.append(obj if transform is None else transform.convert(obj))
                await time_slice.pause()
            revision, token = page.metadata.get("resourceVersion"), page.metadata.get("continue")
            if not is_revision(revision) or (token and token == query.get("continue")):
                raise KubeUnavailableError(
                    f"GET {path}: the answer is not the next page of a list: its "
                    f"metadata are {str(page.metadata)[:200]}: is it the API server that answers?"
                )
            if not token:
                return Listed(tuple(objects), int(revision), is_whole)
            query["continue"] = token


def _is_failed_test(patch: object, error: RefusedError) -> bool:
    # This text is all that kube-apiserver 1.36 says about a patch that can't be applied. If the
    # patched object is invalid, it names the invalid fields.
    return (
        error.status == _UNPROCESSABLE
        and isinstance(patch, Sequence)
        and any(operation.get("op") == "test" for operation in patch)
        and "the server rejected our request" in str(error)
    )


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    named = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: selector for name, selector in named.items() if selector}
