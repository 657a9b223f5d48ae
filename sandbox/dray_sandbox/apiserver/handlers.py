"""HTTP handlers of requests on resources."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import web

from . import events, metadata, status, subresources
from .apply import apply_patch
from .context import Context
from .deletion import DeleteOptions, Deletion
from .lists import check_number, list_page, number
from .operations import Operations
from .requests import (
    APPLY_PATCH,
    DEPRECATION,
    WARNINGS,
    Target,
    answer,
    body_of,
    context_of,
    flag,
    timeout_of,
    wants_table,
    warned,
)
from .resources import NO_CONTAINERS, NO_WORKLOADS, OF_CONTAINERS, ApiResource
from .selectors import predicate
from .serviceaccounts import ServiceAccountTokens
from .status import ApiError, Object, bad_request
from .store import Store
from .tables import table
from .transforms import applied, keys_of, patch_of, replacement
from .watch import Watches, WatchRequest, WatchSettings
from .wire import NEW_EVENTS, TYPE, deletion_answer, event_table, stored_as, wire


class Handlers:
    """One method per verb; errors are `ApiError`s."""

    def __init__(
        self,
        operations: Operations,
        deletion: Deletion,
        watches: Watches,
        settings: WatchSettings,
        accounts: ServiceAccountTokens,
    ) -> None:
        self._operations = operations
        self._accounts = accounts
        self._deletion = deletion
        self._store: Store = operations.store
        self._watches = watches
        self._settings = settings

    async def handle(self, request: web.Request, target: Target, who: Object) -> web.StreamResponse:
        """Serve one request on a resource, within the request's timeout."""
        try:
            async with asyncio.timeout(None if flag(request, "watch") else timeout_of(request)):
                return await self._handle(request, target, who)
        except TimeoutError:
            raise status.timed_out() from None

    async def _handle(
        self, request: web.Request, target: Target, who: Object
    ) -> web.StreamResponse:
        resource = self._operations.registry.find(target.group, target.version, target.plural)
        if resource is None or (target.namespace and not resource.namespaced):
            raise status.no_such_resource()
        if resource.store_key == "/pods" and target.subresource in OF_CONTAINERS:
            self._operations.existing(resource, target.namespace, target.name)
            raise bad_request(NO_CONTAINERS)
        if target.subresource and target.subresource not in (*resource.subresources, "finalize"):
            raise status.no_such_resource()
        request[DEPRECATION] = resource.deprecation
        verb = request.method
        context = context_of(request, who)
        request[WARNINGS] = context.warnings
        if verb == "GET" and target.name:
            return self._get(request, resource, target)
        if not resource.has_objects:
            raise _refusal(request, resource)
        if verb == "GET":
            return await self._list_or_watch(request, resource, target)
        if verb == "POST":
            return await self._create(request, resource, target, context)
        if verb in ("PUT", "PATCH") and target.name:
            return await self._update(request, resource, target, context)
        whole_namespaces = resource.store_key == "/namespaces" and not target.name
        if verb == "DELETE" and not target.subresource and not whole_namespaces:
            return await self._delete(request, resource, target, context)
        raise status.method_not_allowed()

    def _get(self, request: web.Request, resource: ApiResource, target: Target) -> web.Response:
        item = self._operations.existing(resource, target.namespace, target.name)
        return self._one(request, resource, item)

    def _one(
        self,
        request: web.Request,
        resource: ApiResource,
        item: Object,
        code: int = 200,
        warnings: list[str] | None = None,
    ) -> web.Response:
        if wants_table(request):
            meta = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
            include = request.query.get("includeObject") or "Metadata"
            shown = table(resource, [wire(resource, item)], meta, include)
            return answer(shown, code, warnings)
        return answer(wire(resource, item), code, warnings)

    async def _list_or_watch(
        self, request: web.Request, resource: ApiResource, target: Target
    ) -> web.StreamResponse:
        if flag(request, "watch"):
            return await self._watch(request, resource, target)
        page = list_page(self._store, resource, target.namespace, request.query)
        items = [wire(resource, item) for item in page.items]
        if wants_table(request):
            include = request.query.get("includeObject") or "Metadata"
            return answer(table(resource, items, page.meta, include))
        if resource.crd is None:
            # Items of typed lists have no apiVersion and kind.
            items = [{k: v for k, v in i.items() if k not in TYPE} for i in items]
        body = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": page.meta,
            "items": items,
        }
        return answer(body)

    async def _watch(
        self, request: web.Request, resource: ApiResource, target: Target
    ) -> web.StreamResponse:
        wanted = self._watch_request(request, resource, target)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        warned(response, resource.deprecation)
        await response.prepare(request)
        as_table, first = wants_table(request), True
        include = request.query.get("includeObject") or "Metadata"
        async for event in self._watches.events(wanted):
            item = event["object"]
            if event["type"] not in ("ERROR", "BOOKMARK"):
                item = wire(resource, item)
            if as_table and event["type"] != "ERROR":
                item = event_table(resource, event["type"], item, include, first)
                first = False
            line = msgspec.json.encode({"type": event["type"], "object": item})
            try:
                await response.write(line + b"\n")
            except ConnectionResetError:
                return response  # the watcher has disconnected
        await response.write_eof()
        return response

    def _watch_request(
        self, request: web.Request, resource: ApiResource, target: Target
    ) -> WatchRequest:
        query = request.query
        version = query.get("resourceVersion", "")
        if version not in ("", "0"):
            check_number(version)
        initial = flag(request, "sendInitialEvents")
        if initial and not self._settings.send_initial_events:
            field = "sendInitialEvents"
            text = (
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is "
                "enabled"
            )
            found = [status.forbidden_field(field, text)]
            raise status.invalid_object("ListOptions", "meta.k8s.io", "", found)
        fields = query.get("fieldSelector", "")
        if target.name:
            fields = f"metadata.name={target.name}"
        timeout = query.get("timeoutSeconds") or query.get("timeout", "").removesuffix("s")
        return WatchRequest(
            resource_key=resource.store_key,
            kind=resource.kind,
            api_version=resource.api_version,
            namespace=target.namespace,
            predicate=predicate(query.get("labelSelector", ""), fields, resource.field_selectors),
            version=version,
            oldest=resource.served_since,
            bookmarks=flag(request, "allowWatchBookmarks"),
            initial_events=initial,
            timeout_s=float(timeout) if timeout and timeout != "0" else None,
        )

    async def _create(
        self, request: web.Request, resource: ApiResource, target: Target, context: Context
    ) -> web.Response:
        body = await body_of(request)
        if target.subresource in ("binding", "eviction"):
            result = await self._pod_verb(resource, target, body, context)
            return answer(result, 201, context.warnings)
        if target.subresource == "token":
            return answer(self._accounts.request(target.namespace, target.name, body), 201)
        if target.name or (resource.namespaced and not target.namespace):
            raise status.method_not_allowed()
        if resource.group == NEW_EVENTS and isinstance(body, dict):
            found = events.new_errors(body)
            if found:
                name = (body.get("metadata") or {}).get("name", "")
                raise status.invalid_object("Event", NEW_EVENTS, name, found)
        used, body = stored_as(self._operations, resource, body)
        created = await self._operations.create(used, target.namespace, body, context)
        return self._one(request, resource, created, 201, context.warnings)

    async def _pod_verb(
        self, resource: ApiResource, target: Target, body: Any, context: Context
    ) -> Object:
        if not isinstance(body, dict):
            raise bad_request("the body of the request is not an object")
        where = (resource, target.namespace, target.name)
        if target.subresource == "binding":
            return await subresources.bind(self._operations, *where, body, context)
        return await subresources.evict(self._operations, self._deletion, *where, body, context)

    async def _update(
        self, request: web.Request, resource: ApiResource, target: Target, context: Context
    ) -> web.Response:
        body = await body_of(request)
        used, body = stored_as(self._operations, resource, body)
        if request.method == "PUT":
            transform, patch = replacement(body), False
        else:
            if request.content_type == APPLY_PATCH:
                body = applied(used, body, target.subresource)
            transform, patch = patch_of(request, used, body, context), True
            if request.content_type == APPLY_PATCH and not target.subresource:
                created = await self._applied_new(used, target, body, context)
                if created is not None:
                    return self._one(request, resource, created, 201, context.warnings)
        updated = await self._operations.update(
            used,
            target.namespace,
            target.name,
            transform,
            context,
            subresource=target.subresource.replace("finalize", ""),
            patch=patch,
        )
        return self._one(request, resource, updated, 200, context.warnings)

    async def _applied_new(
        self, resource: ApiResource, target: Target, body: Any, context: Context
    ) -> Object | None:
        try:
            self._operations.existing(resource, target.namespace, target.name)
        except ApiError:
            new = apply_patch(
                None,
                body,
                manager=context.field_manager,
                force=False,
                keys=keys_of(resource),
                now=metadata.now(),
            )
            new.setdefault("metadata", {}).setdefault("name", target.name)
            new["metadata"].pop("resourceVersion", None)  # there is no object yet
            return await self._operations.create(resource, target.namespace, new, context)
        return None

    async def _delete(
        self, request: web.Request, resource: ApiResource, target: Target, context: Context
    ) -> web.Response:
        options = await _delete_options(request)
        if options[1]:
            context = replace(context, dry_run=True)
        if target.name:
            where = (resource, target.namespace, target.name)
            deleted = await self._deletion.delete(*where, options[0], context)
            return answer(deletion_answer(resource, deleted), 200, context.warnings)
        page = list_page(self._store, resource, target.namespace, request.query)
        for item in page.items:
            meta = item["metadata"]
            where = (resource, meta.get("namespace", ""), meta["name"])
            await self._deletion.delete(*where, options[0], context)
        body = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": page.meta,
            "items": [wire(resource, item) for item in page.items],
        }
        return answer(body, 200, context.warnings)


async def _delete_options(request: web.Request) -> tuple[DeleteOptions, bool]:
    """Options from the body, else from the query; and whether this is a dry run."""
    body: Any = {}
    if request.can_read_body and (await request.read()).strip():
        body = await body_of(request)
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not a DeleteOptions")
    query = request.query
    merged = dict(body)
    if "gracePeriodSeconds" in query:
        merged["gracePeriodSeconds"] = number(query["gracePeriodSeconds"])
    if "propagationPolicy" in query:
        merged["propagationPolicy"] = query["propagationPolicy"]
    return DeleteOptions.read(merged), bool(body.get("dryRun"))


def _refusal(request: web.Request, resource: ApiResource) -> ApiError:
    """The answer to every request but GET on a kind without objects.

    Its body is not read: kubectl sends some of these kinds as protobuf.
    """
    if request.method != "POST":
        return status.method_not_allowed(NO_WORKLOADS)
    return status.forbidden(resource.plural, resource.group, "", NO_WORKLOADS)
