"""Objects in memory with the API server's metadata: revisions, uids, deletion, watches."""

import asyncio
import itertools
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dray.api import json_codec
from dray.api.pods import TERMINAL_PHASES
from dray.kube.memory_copy import deep_copy
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.memory_rules import check_update, has_generation, merge_update, prepare_create
from dray.kube.ports import (
    PODS,
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)

Key = tuple[str, str]
"""Namespace and name."""
_FIRST_REVISION: Final = 1000
_GRACE_S: Final = 30
_MOST_NESTING: Final = 10_000
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class Event:
    """A change: the object before (None: added) and after (None: deleted)."""

    resource: Resource
    before: Object | None
    after: Object | None


@dataclass(slots=True, eq=False)
class Feed:
    """The changes of one kind that one watch has not delivered yet."""

    resource: Resource
    events: deque[Event] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class MemoryStore:
    """The state of an API server and etcd."""

    now_unix_s: Callable[[], float]
    revision: int = _FIRST_REVISION
    objects: dict[Resource, dict[Key, Object]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    """Every change, for tests. Watches do not read it."""
    feeds: dict[Resource, dict[Feed, None]] = field(default_factory=dict)
    """The open watches, by kind."""
    expiry: int = 0
    """How many times watches had to list again."""
    refusals: list[InjectedRefusal] = field(default_factory=list)
    """The refusals in force."""
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def of(self, resource: Resource) -> dict[Key, Object]:
        """All objects of a kind."""
        return self.objects.setdefault(resource, {})

    def get(self, resource: Resource, name: str, namespace: str) -> Object:
        """The stored object itself; never pass it to callers. Raises NotFoundError."""
        found = self.of(resource).get((namespace if resource.namespaced else "", name))
        if found is None:
            raise NotFoundError(f'{resource.plural} "{name}" not found')
        return found

    def create(self, resource: Resource, obj: Object, namespace: str, dry_run: bool) -> Object:
        """Store a new object. Raises AlreadyExistsError, RefusedError."""
        made = _stored(obj)
        metadata = made.setdefault("metadata", {})
        if resource.namespaced:
            metadata["namespace"] = namespace or metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise RefusedError("metadata.name: Required value: name or generateName", 422)
            metadata["name"] = f"{metadata['generateName']}{next(self._names):05d}"
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self.of(resource):
            raise AlreadyExistsError(f'{resource.plural} "{metadata["name"]}" already exists')
        prepare_create(resource, made)
        made |= {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self._timestamp()
        if has_generation(resource):
            metadata["generation"] = 1
        if not dry_run:
            self._put(resource, None, made)
        return deep_copy(made)

    def write(self, resource: Resource, old: Object, new: Object, subresource: str = "") -> Object:
        """Replace ``old`` by ``new`` as an update of a (sub)resource. Raises ConflictError,
        RefusedError."""
        new = _stored(new)
        self._check_identity(resource, old, new)
        check_update(resource, old, new, subresource)
        merged = merge_update(resource, old, new, subresource)
        metadata = merged["metadata"] = dict(merged["metadata"])
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "generation", "namespace"):
            metadata.pop(name, None)
            if name in old["metadata"]:
                metadata[name] = old["metadata"][name]
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        merged |= {"apiVersion": resource.api_version, "kind": resource.kind}
        if merged == old:
            return deep_copy(old)
        if has_generation(resource) and merged.get("spec") != old.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return self._remove(resource, old, merged)
        return deep_copy(self._put(resource, old, merged))

    def delete(self, resource: Resource, old: Object, grace_period_s: int | None) -> None:
        """Begin or finish deletion, depending on finalizers and a pod's grace period."""
        metadata = old["metadata"]
        graceful = (
            resource == PODS
            and old["spec"].get("nodeName")
            and old["status"].get("phase") not in TERMINAL_PHASES
            and grace_period_s != 0
        )
        if not metadata.get("finalizers") and not graceful:
            self._remove(resource, old, deep_copy(old))
        elif "deletionTimestamp" not in metadata:
            new = deep_copy(old)
            new["metadata"]["deletionTimestamp"] = self._timestamp()
            if graceful:
                new["metadata"]["deletionGracePeriodSeconds"] = (
                    _GRACE_S if grace_period_s is None else grace_period_s
                )
            self._put(resource, old, new)

    def bind(self, pod: Object, node: str, annotations: Mapping[str, str]) -> None:
        """Set a pod's node, without the rules of an update, and add the annotations."""
        new = deep_copy(pod)
        if annotations:
            new["metadata"].setdefault("annotations", {}).update(annotations)
        new["spec"]["nodeName"] = node
        conditions = [
            c for c in new["status"].get("conditions") or () if c["type"] != "PodScheduled"
        ]
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": self._timestamp(),
        }
        new["status"]["conditions"] = [*conditions, scheduled]
        self._put(PODS, pod, new)

    def open_feed(self, resource: Resource) -> Feed:
        """Collect the changes of a kind from now on, until ``close_feed``."""
        feed = Feed(resource)
        self.feeds.setdefault(resource, {})[feed] = None
        return feed

    def close_feed(self, feed: Feed) -> None:
        """Undo ``open_feed``."""
        del self.feeds[feed.resource][feed]

    def expire(self) -> None:
        """Make every watch list again."""
        self.expiry += 1
        for feeds in self.feeds.values():
            for feed in feeds:
                feed.changed.set()

    def announce(self, event: Event) -> None:
        """Record a change, and pass it to the watches of its kind."""
        self.events.append(event)
        for feed in self.feeds.get(event.resource, ()):
            feed.events.append(event)
            feed.changed.set()

    def _check_identity(self, resource: Resource, old: Object, new: Object) -> None:
        name = old["metadata"]["name"]
        wanted = new["metadata"]
        if wanted.get("uid") not in (None, "", old["metadata"]["uid"]):
            raise ConflictError(
                f'{resource.plural} "{name}": uid {wanted["uid"]} is not {old["metadata"]["uid"]}'
            )
        version = str(wanted.get("resourceVersion") or "")
        if version and version != old["metadata"]["resourceVersion"]:
            raise ConflictError(
                f'Operation cannot be fulfilled on {resource.plural} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again"
            )

    def _put(self, resource: Resource, old: Object | None, new: Object) -> Object:
        self.revision += 1
        stored = deep_copy(new)
        metadata = stored["metadata"]
        metadata["resourceVersion"] = str(self.revision)
        new["metadata"]["resourceVersion"] = str(self.revision)
        self.of(resource)[metadata.get("namespace", ""), metadata["name"]] = stored
        self.announce(Event(resource, old, stored))
        return stored

    def _remove(self, resource: Resource, old: Object, last: dict[str, Any]) -> Object:
        self.revision += 1
        metadata = old["metadata"]
        del self.of(resource)[metadata.get("namespace", ""), metadata["name"]]
        last["metadata"]["resourceVersion"] = str(self.revision)
        self.announce(Event(resource, last, None))
        return deep_copy(last)

    def _timestamp(self) -> str:
        return datetime.fromtimestamp(self.now_unix_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _stored(obj: Object) -> Object:
    """A JSON copy, as an API server returns objects."""
    text = msgspec.json.encode(obj)
    if json_codec.is_deeper(text, _MOST_NESTING):
        raise RefusedError("json parse error: exceeded max depth", 400)
    return json_codec.decode(text, _OBJECT)
