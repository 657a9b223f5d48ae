"""The application: store, admission, loops and routes put together."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from dray.api.names import DRAY_NAMESPACE

from . import discovery, metadata, status
from .admission import ApiAdmission
from .deletion import Deletion
from .garbage import GarbageCollector, follow_crds
from .handlers import Handlers
from .journal import RequestJournal
from .manifests import apply_directory
from .operations import Operations
from .requests import DEPRECATION, WARNINGS, Tokens, answer, failure, parse_path, warned
from .resources import Registry
from .reviews import review
from .serviceaccounts import ServiceAccountTokens, signing_key
from .status import ApiError, NoSuchPath
from .store import Store
from .watch import Watches, WatchSettings
from .webhooks import WebhookClient

log = logging.getLogger(__name__)
_NAMESPACES = ("default", "kube-system", DRAY_NAMESPACE)
_MAX_BODY_BYTES = 3 * 1024 * 1024
STORE: web.AppKey[Store] = web.AppKey("store", Store)
WATCHES: web.AppKey[Watches] = web.AppKey("watches", Watches)


@dataclass(frozen=True)
class ApiServerSettings:
    """How the server is set up."""

    data_dir: Path | None = None
    """The folder in which writes are kept; None: only in memory."""
    crds: tuple[Path, ...] = ()
    """Directories of CustomResourceDefinition manifests applied at start."""
    history_size: int = 20_000
    """Changes kept for watches that resume."""
    watch: WatchSettings = field(default_factory=WatchSettings)
    serve: tuple[str, ...] = ()
    """API versions that are off by default: `resource.k8s.io/v1beta2`."""


def create_app(tokens: Tokens, settings: ApiServerSettings | None = None) -> web.Application:
    """The API server as an aiohttp application."""
    settings = settings or ApiServerSettings()
    journal = RequestJournal(settings.data_dir) if settings.data_dir else None
    store = Store(journal, settings.history_size)
    registry = Registry(settings.serve)
    follow_crds(store, registry)
    client = WebhookClient()
    operations = Operations(store, registry, ApiAdmission(store, client))
    deletion = Deletion(operations)
    watches = Watches(store, settings.watch)
    accounts = ServiceAccountTokens(store, registry, signing_key(settings.data_dir))
    handlers = Handlers(operations, deletion, watches, settings.watch, accounts)
    routes = _Routes(tokens, registry, handlers, accounts)
    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[_errors])
    app[STORE], app[WATCHES] = store, watches
    app.router.add_route("*", "/{path:.*}", routes.serve)

    async def lifetime(_: web.Application) -> AsyncIterator[None]:
        collector = GarbageCollector(operations, deletion)
        _ensure_namespaces(store)
        for directory in settings.crds:
            await apply_directory(operations, directory)
        await collector.settle()
        task = asyncio.create_task(collector.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.close()
        store.close()

    async def end_watches(_: web.Application) -> None:
        watches.end_all()

    app.cleanup_ctx.append(lifetime)
    app.on_shutdown.append(end_watches)
    return app


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """The TLS context of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def _ensure_namespaces(store: Store) -> None:
    for name in _NAMESPACES:
        key = ("/namespaces", "", name)
        if store.get(key) is None:
            meta = {"name": name, "labels": {"kubernetes.io/metadata.name": name}}
            metadata.fill_new(meta)
            item = {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": meta,
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            }
            store.write(key, item, None)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with a v1.Status."""
    try:
        return warned(await handler(request), request.get(DEPRECATION, ""))
    except ApiError as error:
        refusal = warned(failure(error), request.get(DEPRECATION, ""))
        for text in dict.fromkeys(request.get(WARNINGS, ())):
            warned(refusal, text)
        return refusal
    except NoSuchPath:
        return web.Response(text="404 page not found\n", status=404)
    except web.HTTPRequestEntityTooLarge:
        limit = _MAX_BODY_BYTES
        return failure(
            ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")
        )
    except (ConnectionResetError, asyncio.CancelledError):
        raise
    except Exception as error:
        # The client must get a Status, and the operator the trace.
        log.exception("%s %s failed", request.method, request.path_qs)
        return failure(ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))


class _Routes:
    """Routes of paths that are not resources, and dispatch to resources."""

    def __init__(
        self,
        tokens: Tokens,
        registry: Registry,
        handlers: Handlers,
        accounts: ServiceAccountTokens,
    ) -> None:
        self._tokens = tokens
        self._accounts = accounts
        self._registry = registry
        self._handlers = handlers

    async def serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        if path in ("/healthz", "/readyz", "/livez") or path.startswith(("/readyz/", "/livez/")):
            return web.Response(text="ok")
        if path == "/version":
            return answer(discovery.VERSION)
        who = self._tokens.user(request)
        parts = path.strip("/").split("/")
        if parts[0] == "openapi":
            return self._openapi(request, parts)
        found = self._discovery(request, parts)
        if found is not None:
            return found
        target = parse_path(request.path)
        if target is None:
            raise NoSuchPath
        if not self._known(target.group):
            raise NoSuchPath
        reviews = discovery.REVIEWS.get((target.group, target.version), {})
        if target.plural in reviews and request.method == "POST":
            raw = await request.read()
            return answer(review(target.group, target.plural, raw, who, self._accounts), 201)
        return await self._handlers.handle(request, target, who)

    def _known(self, group: str) -> bool:
        """Kubernetes' own groups and those of CRDs answer for themselves."""
        return not group or group.endswith(".k8s.io") or group in self._registry.groups()

    def _discovery(self, request: web.Request, parts: list[str]) -> web.Response | None:
        registry = self._registry
        match parts:
            case ["api"]:
                body = discovery.core_versions(request.host)
            case ["apis"]:
                body = discovery.group_list(registry)
            case ["api", version]:
                found = discovery.resource_list(registry, "", version)
                body = _found(found)
            case ["apis", name]:
                body = _found(discovery.group(registry, name))
            case ["apis", name, version]:
                body = _found(discovery.resource_list(registry, name, version))
            case ["" | "index.html"]:
                body = {"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]}
            case _:
                return None
        return answer(body)

    def _openapi(self, request: web.Request, parts: list[str]) -> web.Response:
        match parts:
            case ["openapi", "v2"] if "protobuf" in request.headers.get("Accept", ""):
                body = discovery.openapi_v2_protobuf()
                return web.Response(body=body, content_type=discovery.OPENAPI_V2_PROTOBUF)
            case ["openapi", "v2"]:
                return answer(discovery.openapi_v2(self._registry))
            case ["openapi", "v3"]:
                return answer(discovery.openapi_index(self._registry))
            case ["openapi", "v3", "api", version]:
                return answer(_found(discovery.openapi(self._registry, "", version)))
            case ["openapi", "v3", "apis", name, version]:
                return answer(_found(discovery.openapi(self._registry, name, version)))
            case _:
                raise status.no_such_resource()


def _found(body: status.Object | None) -> status.Object:
    if body is None:
        raise status.no_such_resource()
    return body
