"""An in-memory API server for ``benchmarks.leader``: ``python -m benchmarks.leader_api``.

It stores JSON texts, answers lists in pages, and sends changes to watches, so that a client reads
it like a real server. It checks little and stores whatever is written.
"""

import asyncio
import itertools
import json
import re
import sys
import time
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import click
import msgspec
from aiohttp import web

from benchmarks.leader_cluster import (
    LARGE,
    SMALL,
    ClusterSize,
    cluster_objects,
    encoded,
    foreign_pod,
    own_claim,
    own_pod,
)
from dray.api.names import POOL_LABEL
from dray.kube.memory_patch import patched
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NODES,
    PODS,
    TAINT_RULES_BETA,
    ConflictError,
    Object,
    RefusedError,
    Resource,
)

Key = tuple[str, str]
_PATH = re.compile(
    r"^/(?:api/v1|apis/([^/]+)/([^/]+))(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$"
)
_SORTED_KEYS = (BIND_REQUESTS.group,)
"""Groups of custom resources: a server writes their keys sorted."""
_BOOKMARK_S = 30.0


class StoredKind:
    """The objects of one kind, and their changes."""

    def __init__(self, api_version: str) -> None:
        self.api_version = api_version
        self.texts: dict[Key, bytes] = {}
        self.changes: list[tuple[int, bytes]] = []
        """Lines of watches, by revision."""
        self.changed = asyncio.Event()


class LeaderApi:
    """The server's state and its handlers."""

    def __init__(self, size: ClusterSize) -> None:
        self._size = size
        self._kinds: dict[str, StoredKind] = {}
        self._of_pool: dict[str, dict[Key, None]] = {}
        """Claims by the pool that their label names."""
        self._revision = 1000
        self._pages: dict[str, list[bytes]] = {}
        self._tokens = itertools.count(1)
        self.requests: dict[str, int] = {}
        self._churn: asyncio.Task[None] | None = None
        for resource, obj in cluster_objects(size):
            self.store(resource.group, resource.plural, obj)
        for kind in self._kinds.values():
            kind.changes.clear()

    def kind(self, group: str, plural: str) -> StoredKind:
        """The objects of a kind; empty if the kind is new."""
        name = f"{group}/{plural}"
        if name not in self._kinds:
            self._kinds[name] = StoredKind("")
        return self._kinds[name]

    def store(self, group: str, plural: str, obj: Object) -> bytes:
        """Store an object under the next revision; returns its text."""
        kind, metadata = self.kind(group, plural), obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self._revision += 1
        metadata.setdefault("uid", str(uuid4()))
        if group in _SORTED_KEYS:
            obj = json.loads(json.dumps(obj, sort_keys=True))
        text = encoded(obj, self._revision)
        event = b"MODIFIED" if key in kind.texts else b"ADDED"
        kind.texts[key] = text
        if plural == CLAIMS.plural and (pool := (metadata.get("labels") or {}).get(POOL_LABEL)):
            self._of_pool.setdefault(pool, {})[key] = None
        self._tell(kind, event, text)
        return text

    def remove(self, group: str, plural: str, key: Key) -> None:
        """Delete an object."""
        kind = self.kind(group, plural)
        obj = msgspec.json.decode(kind.texts.pop(key))
        pool = (obj["metadata"].get("labels") or {}).get(POOL_LABEL, "")
        self._of_pool.get(pool, {}).pop(key, None)
        self._revision += 1
        self._tell(kind, b"DELETED", encoded(obj, self._revision))

    def _tell(self, kind: StoredKind, event: bytes, text: bytes) -> None:
        kind.changes.append((self._revision, b'{"type":"%b","object":%b}\n' % (event, text)))
        changed, kind.changed = kind.changed, asyncio.Event()
        changed.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.3"})
        if request.path == "/bench/churn":
            return self._set_churn(float(request.query["rate"]))
        if request.path == "/bench/requests":
            return web.json_response(self.requests)
        found = _PATH.match(request.path)
        if found is None:
            return _status(404, "NotFound", request.path)
        group, namespace, plural = found[1] or "", found[3] or "", found[4]
        name, subresource = found[5] or "", found[6] or ""
        if plural == TAINT_RULES_BETA.plural:
            return _status(404, "NotFound", "not served")
        verb = "watch" if "watch" in request.query else request.method
        label = f"{verb} {plural}"
        self.requests[label] = self.requests.get(label, 0) + 1
        if verb == "watch":
            return await self._watch(request, self.kind(group, plural))
        if not name and verb == "GET":
            return self._list(request, group, plural, namespace)
        return await self._one(request, (group, plural), (namespace, name), subresource)

    def _set_churn(self, rate_per_s: float) -> web.Response:
        if self._churn is not None:
            self._churn.cancel()
        self._churn = asyncio.create_task(self._change(rate_per_s)) if rate_per_s else None
        return web.json_response({})

    def _list(
        self, request: web.Request, group: str, plural: str, namespace: str
    ) -> web.StreamResponse:
        query = request.query
        if (token := query.get("continue")) is None:
            token, texts = str(next(self._tokens)), self._selected(group, plural, namespace, query)
            # The revision counts as that of the first page.
            self._pages[token] = [str(self._revision).encode(), *reversed(texts)]
        revision, *rest = self._pages.pop(token)
        limit = int(query.get("limit") or 0) or len(rest)
        page = [rest.pop() for _ in range(min(limit, len(rest)))]
        metadata = b'"resourceVersion":"%b"' % revision
        if rest:
            token = str(next(self._tokens))
            self._pages[token] = [revision, *rest]
            metadata += b',"continue":"%b"' % token.encode()
        body = b'{"kind":"List","apiVersion":"v1","metadata":{%b},"items":[%b]}' % (
            metadata,
            b",".join(page),
        )
        return web.Response(body=body, content_type="application/json")

    def _selected(self, group: str, plural: str, namespace: str, query: Any) -> list[bytes]:
        texts = self.kind(group, plural).texts
        keys: Iterable[Key] = texts
        if selector := query.get("labelSelector"):
            label, _, value = selector.partition("=")
            if label != POOL_LABEL or plural != CLAIMS.plural:
                known = f"{POOL_LABEL} of {CLAIMS.plural}"
                raise web.HTTPBadRequest(text=f"labelSelector {selector!r}: expected {known}")
            keys = self._of_pool.get(value, {})
        return [texts[key] for key in sorted(keys) if not namespace or key[0] == namespace]

    async def _watch(self, request: web.Request, kind: StoredKind) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        after = int(request.query["resourceVersion"])
        position = next(
            (at for at, (revision, _) in enumerate(kind.changes) if revision > after),
            len(kind.changes),
        )
        while True:
            changed = kind.changed
            if lines := [line for _, line in kind.changes[position:]]:
                position += len(lines)
                await response.write(b"".join(lines))
                continue
            try:
                async with asyncio.timeout(_BOOKMARK_S):
                    await changed.wait()
            except TimeoutError:
                metadata = {"resourceVersion": str(self._revision)}
                bookmark = {"type": "BOOKMARK", "object": {"metadata": metadata}}
                await response.write(msgspec.json.encode(bookmark) + b"\n")

    async def _one(
        self, request: web.Request, kind: tuple[str, str], key: Key, subresource: str
    ) -> web.StreamResponse:
        texts, body = self.kind(*kind).texts, await request.read()
        new = msgspec.json.decode(body) if body else None
        if request.method == "POST" and subresource == "binding":
            obj = msgspec.json.decode(texts[key])
            obj["spec"]["nodeName"] = new["target"]["name"]
            self.store(*kind, obj)
            return web.json_response({}, status=201)
        if request.method == "POST":
            return self._create(request, kind, key[0], new)
        if key not in texts:
            return _status(404, "NotFound", f"{kind[1]} {key[1]} not found")
        if request.method == "GET":
            return web.Response(body=texts[key], content_type="application/json")
        if request.method == "DELETE":
            self.remove(*kind, key)
            return web.json_response({})
        old = msgspec.json.decode(texts[key])
        try:
            if request.method == "PATCH":
                is_merge = request.content_type == "application/merge-patch+json"
                wanted = patched(old, new, "merge" if is_merge else "json")
            else:
                wanted = new
        except (ConflictError, RefusedError) as error:
            return _status(422, "Invalid", str(error))
        version = wanted["metadata"].get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", f"{key[1]} has been modified")
        if {**wanted, "metadata": None} == {**old, "metadata": None} and (
            {**wanted["metadata"], "resourceVersion": ""}
            == {**old["metadata"], "resourceVersion": ""}
        ):
            return web.Response(body=texts[key], content_type="application/json")
        text = self.store(*kind, wanted)
        return web.Response(body=text, content_type="application/json")

    def _create(
        self, request: web.Request, kind: tuple[str, str], namespace: str, obj: Object
    ) -> web.StreamResponse:
        metadata = obj.setdefault("metadata", {})
        if namespace:
            metadata["namespace"] = namespace
        key = (namespace, metadata["name"])
        if key in self.kind(*kind).texts:
            return _status(409, "AlreadyExists", f"{key[1]} already exists")
        metadata.setdefault("uid", str(uuid4()))
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        if "dryRun" in request.query:
            return web.json_response(obj, status=201)
        text = self.store(*kind, obj)
        return web.Response(body=text, status=201, content_type="application/json")

    async def _change(self, rate_per_s: float) -> None:
        """Change ``rate_per_s`` objects a second, as in a busy cluster: phases of pods and
        heartbeats of nodes; pods of both kinds are created and deleted with their claims."""
        began_s, size = time.monotonic(), self._size
        for number in itertools.count():
            rest_s = began_s + number / rate_per_s - time.monotonic()
            if rest_s > 0:
                await asyncio.sleep(rest_s)
            self._change_once(number, size)

    def _change_once(self, number: int, size: ClusterSize) -> None:
        at, turn = number * 7919, number % 10
        if turn < 4:
            self._restate(PODS, foreign_pod(at % size.own_pods, size), number)
        elif turn < 6:
            self._restate(PODS, own_pod(at % size.own_pods, size), number)
        elif turn < 8:
            node = {"metadata": {"name": f"node-{at % size.nodes}"}}
            self._restate(NODES, node, number)
        else:
            self._replace(turn, number // 10)

    def _replace(self, turn: int, round_: int) -> None:
        """Even rounds delete a dray pod with its claim, odd rounds create it again."""
        number, life = round_ // 2 % self._size.own_pods, round_ // 2 // self._size.own_pods
        if round_ % 2 == 0:
            resource, old = (
                (PODS, own_pod(number, self._size)),
                (CLAIMS, own_claim(number, self._size)),
            )[turn - 8]
            metadata = old["metadata"]
            key = (metadata["namespace"], metadata["name"])
            self.remove(resource.group, resource.plural, key)
        elif turn == 8:
            self.store(CLAIMS.group, CLAIMS.plural, own_claim(number, self._size, life + 1))
        else:
            self.store(PODS.group, PODS.plural, own_pod(number, self._size, life + 1))

    def _restate(self, resource: Resource, like: Object, number: int) -> None:
        metadata = like["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if (text := self.kind(resource.group, resource.plural).texts.get(key)) is None:
            return
        obj = msgspec.json.decode(text)
        obj["status"]["conditions"][0]["lastHeartbeatTime"] = str(number)
        self.store(resource.group, resource.plural, obj)


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    return web.json_response({**body, "code": code}, status=code)


async def serve(size: ClusterSize, port: int) -> None:
    """Serve until the process ends."""
    api = LeaderApi(size)
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    click.echo("serving")
    sys.stdout.flush()
    await asyncio.Event().wait()


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--small", is_flag=True)
def main(port: int, small: bool) -> None:
    """Serve a large cluster, or a small one."""
    asyncio.run(serve(SMALL if small else LARGE, port))


if __name__ == "__main__":
    main()
