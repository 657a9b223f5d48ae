"""List, then watch, for ever. Resumes after early ends; lists again after a 410, or if the API
server came back with an older state of its store."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from dray.kube.api_transport import GoneError, Transport
from dray.kube.convert_metadata import is_revision
from dray.kube.ports import (
    Changed,
    Deleted,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    RefusedError,
    Resource,
    WatchEvent,
)
from dray.runtime.backoff import Backoff

_NOT_ALLOWED: Final = (401, 403)
PATIENCE_S: Final = 10.0
"""A client that was never admitted retries a 403 for this time: kube-apiserver denies every request
until it has loaded its roles."""
_LEAST_S: Final = 240
_MOST_S: Final = 480
NOT_IDENTIFIED: Final = "an object is left out: its metadata can't be read"
_SHOWN: Final = 200
"""Maximum characters of an unreadable event in a log line."""
_BOOKMARK: Final = "BOOKMARK"
_IDENTITY: Final = ("name", "uid")
_MAPS: Final = ("labels", "annotations")
_LISTS: Final = ("ownerReferences", "finalizers")
_SILENCE_S: Final = 30.0
"""A silent watch is closed this long after its timeout."""


class OlderStoreError(GoneError):
    """The store of the API server was restored from a backup."""


@dataclass(slots=True)
class ServerStore:
    """What the watches of one API server know about its store."""

    restorations: int = 0
    """How many times a watch found the store restored from a backup. Then all other watches list
    again: the server may have passed their revisions before they check."""

    def expect(self, restorations: int) -> None:
        """Raises OlderStoreError if the number of restorations has changed."""
        if self.restorations != restorations:
            raise OlderStoreError("another watch found the store of the API server restored")


async def watch(
    transport: Transport,
    resource: Resource,
    path: str,
    selectors: dict[str, str],
    relist: Callable[[], Awaitable[Listed]],
    store: ServerStore,
) -> AsyncGenerator[WatchEvent, None]:
    """See ``Kube.watch``."""
    import structlog  # Slow to import, because of rich, and most verbs watch nothing

    backoff = Backoff(0.1, 10.0)
    log = structlog.get_logger().bind(watch=resource.plural)
    version: int | None = None
    restorations = store.restorations
    admitted = was_away = is_older = False
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        wait_s = 0.0
        try:
            if version is None:
                restorations = store.restorations
                listed = await relist()
                admitted = True
                version = listed.resource_version
                yield replace(listed, is_older=is_older)
                is_older = was_away = False
            store.expect(restorations)
            if was_away:
                await _check_store(transport, path, version, store)
            was_away = False
            flow = _events(transport, path, selectors, version)
            async with contextlib.aclosing(flow) as events:
                async for kind, obj in events:
                    store.expect(restorations)
                    if not (
                        has_revision(obj) if kind == _BOOKMARK else is_identified(obj, resource)
                    ):
                        log.error(NOT_IDENTIFIED, object=str(obj)[:_SHOWN])
                        continue
                    version = int(obj["metadata"]["resourceVersion"])
                    backoff.reset()
                    if kind != _BOOKMARK:
                        yield _event(resource, kind, obj)
        except GoneError as error:
            is_older = is_older or isinstance(error, OlderStoreError)
            version = None
            log.info("listing again", why=str(error))
        except (KubeUnavailableError, NotFoundError) as error:
            was_away = True  # A store is restored while no API server answers.
            wait_s = getattr(error, "retry_after_s", 0.0)
            log.warning("the watch is away", error=str(error))
        except RefusedError as error:
            waited_s = loop.time() - began_s
            if error.status not in _NOT_ALLOWED or not (admitted or waited_s < PATIENCE_S):
                raise
            log.warning("the watch is away", error=str(error))
        await backoff.pause(wait_s)


async def _check_store(transport: Transport, path: str, version: int, store: ServerStore) -> None:
    """Raises OlderStoreError if the server has not reached this version: its store was restored
    from a backup, and a watch would show nothing below this version."""
    page = await transport.call("GET", path, query={"limit": "1"})
    metadata = page.get("metadata")
    revision = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not is_revision(revision):
        raise KubeUnavailableError(f"GET {path}: {str(page)[:_SHOWN]} is not a list")
    if int(revision) < version:
        store.restorations += 1
        raise OlderStoreError(
            f"the API server is at version {revision}, and was at {version}: its store was restored"
        )


async def _events(
    transport: Transport, path: str, selectors: dict[str, str], version: int
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    # Jittered, so that not all watches end in the same second.
    timeout_s = random.randint(_LEAST_S, _MOST_S)
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": str(version),
        "timeoutSeconds": str(timeout_s),
        **selectors,
    }
    flow = transport.lines(path, query, silence_s=timeout_s + _SILENCE_S)
    async with contextlib.aclosing(flow) as lines:
        async for line in lines:
            kind, obj = line.get("type"), line.get("object")
            if not isinstance(kind, str) or not isinstance(obj, dict):
                raise KubeUnavailableError(f"watch {path}: {str(line)[:200]} is not an event")
            if kind == "ERROR":
                raise _failure(obj)
            yield kind, obj


def is_identified(obj: Any, resource: Resource) -> bool:
    """Whether an object has the metadata that every server writes. Its other parts may have any
    shape."""
    if not has_revision(obj):
        return False
    metadata = obj["metadata"]
    identity = (*_IDENTITY, "namespace") if resource.namespaced else _IDENTITY
    return (
        all(isinstance(text := metadata.get(name), str) and text for name in identity)
        and all(isinstance(metadata.get(name), dict | None) for name in _MAPS)
        and all(isinstance(metadata.get(name), list | None) for name in _LISTS)
    )


def has_revision(obj: Any) -> bool:
    """Whether an object has a resourceVersion."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return isinstance(metadata, dict) and is_revision(metadata.get("resourceVersion"))


def _failure(status: dict[str, Any]) -> GoneError | KubeUnavailableError:
    message = str(status.get("message") or status)
    if status.get("code") == 410 or status.get("reason") in ("Expired", "Gone"):
        return GoneError(message)
    return KubeUnavailableError(f"the watch ended with an error: {message}")


def _event(resource: Resource, kind: str, obj: dict[str, Any]) -> WatchEvent:
    obj.setdefault("apiVersion", resource.api_version)
    obj.setdefault("kind", resource.kind)
    return Deleted(obj) if kind == "DELETED" else Changed(obj)
