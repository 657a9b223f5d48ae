"""The server's control loop: garbage collection, namespaces, CRDs.

The loop wakes on changes. Dependents are deleted after their last owner (background), an owner
waits for its dependents (foreground), or they are orphaned. A terminating namespace is emptied and
removed; new CRDs are established.
"""

import asyncio
import contextlib

from .context import system
from .crds import established, is_established, resources_of
from .deletion import FOREGROUND, ORPHAN, DeleteOptions, Deletion
from .operations import Operations, key_of
from .resources import ApiResource, Registry
from .status import ApiError, Object
from .store import Conflict, Key, Store, StoreChange, copy

_CRDS = "apiextensions.k8s.io/customresourcedefinitions"


def follow_crds(store: Store, registry: Registry) -> None:
    """Serve the resources of the CRDs in the store, now and after every change."""

    def changed(change: StoreChange) -> None:
        if change.key[0] != _CRDS:
            return
        crd = change.new or change.old
        if crd is not None:
            registry.remove_crd(crd["spec"]["group"], crd["spec"]["names"]["plural"])
        if change.new is not None:
            for resource in resources_of(change.new):
                registry.add(resource)

    for crd in store.items(_CRDS):
        for resource in resources_of(crd):
            registry.add(resource)
    store.listen(changed)


class GarbageCollector:
    """Collects in the background; `settle` collects everything due and returns."""

    def __init__(self, operations: Operations, deletion: Deletion) -> None:
        self._operations = operations
        self._deletion = deletion
        self._store = operations.store
        self._owned: dict[str, dict[Key, None]] = {}
        """Keys of dependents by the uid of their owner."""
        self._waiting: dict[str, Key] = {}
        """Owners whose deletion waits for their dependents, by uid."""
        self._due: dict[Key, None] = {}
        self._wake = asyncio.Event()
        for name in self._store.resources():
            for item in self._store.items(name):
                meta = item["metadata"]
                key = (name, meta.get("namespace", ""), meta["name"])
                self._note(StoreChange(0, key, None, item))
        self._store.listen(self._note)

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.settle()

    async def settle(self) -> None:
        """Handle everything due, and everything that becomes due as a result."""
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            # After a refusal (webhook, conflict), the object's next change causes a retry.
            with contextlib.suppress(ApiError, Conflict):
                await self._handle(key)

    def _note(self, change: StoreChange) -> None:
        old, new = change.old, change.new
        for item in (old, new):
            for owner in (item or {}).get("metadata", {}).get("ownerReferences") or []:
                dependents = self._owned.setdefault(owner["uid"], {})
                if item is new:
                    dependents[change.key] = None
                else:
                    dependents.pop(change.key, None)
        if new is None and old is not None:
            for dependent in self._owned.get(old["metadata"]["uid"], {}):
                self._due[dependent] = None
            for owner in old["metadata"].get("ownerReferences") or []:
                self._due_owner(owner["uid"])
            self._due[("/namespaces", "", change.key[1])] = None
            if change.key[0] == _CRDS:
                self._drop_instances(old)
        else:
            self._due[change.key] = None
        self._wake.set()

    def _due_owner(self, uid: str) -> None:
        """Check an owner that waits for its dependents."""
        key = self._waiting.pop(uid, None)
        if key is not None:
            self._due[key] = None

    def _drop_instances(self, crd: Object) -> None:
        name = f"{crd['spec']['group']}/{crd['spec']['names']['plural']}"
        for item in self._store.items(name):
            meta = item["metadata"]
            self._store.write((name, meta.get("namespace", ""), meta["name"]), None, item)

    async def _handle(self, key: Key) -> None:
        item = self._store.get(key)
        if item is None:
            return
        meta = item["metadata"]
        if "deletionTimestamp" in meta:
            finalizers = meta.get("finalizers") or []
            if ORPHAN in finalizers:
                self._orphan(key, item)
            elif FOREGROUND in finalizers:
                await self._foreground(key, item)
            elif key[0] == "/namespaces":
                await self._empty_namespace(key, item)
            return
        if key[0] == _CRDS and not is_established(item):
            self._store.write(key, {**item, "status": established(item)}, item)
        owners = meta.get("ownerReferences") or []
        if owners:
            await self._check_owners(key, item, owners)

    async def _check_owners(self, key: Key, item: Object, owners: list[Object]) -> None:
        kept = [owner for owner in owners if self._owner_exists(owner, key[1])]
        if len(kept) == len(owners):
            return
        if not kept:
            await self._delete(key, item)
            return
        new = copy(item)
        new["metadata"]["ownerReferences"] = kept
        self._store.write(key, new, item)

    def _owner_exists(self, owner: Object, namespace: str) -> bool:
        resource = self._operations.registry.by_kind(owner["apiVersion"], owner["kind"])
        if resource is None:
            return True  # another server may serve an unknown kind
        found = self._store.get(key_of(resource, namespace, owner["name"]))
        return found is not None and found["metadata"]["uid"] == owner["uid"]

    def _dependents(self, uid: str) -> list[tuple[Key, Object]]:
        keys = list(self._owned.get(uid, {}))
        return [(key, item) for key in keys if (item := self._store.get(key)) is not None]

    async def _foreground(self, key: Key, item: Object) -> None:
        uid = item["metadata"]["uid"]
        self._waiting[uid] = key
        for dependent_key, dependent in self._dependents(uid):
            if "deletionTimestamp" not in dependent["metadata"]:
                await self._delete(dependent_key, dependent)
        if not self._dependents(uid):
            self._waiting.pop(uid, None)
            self._finish(key, FOREGROUND)

    def _orphan(self, key: Key, item: Object) -> None:
        uid = item["metadata"]["uid"]
        for dependent_key, dependent in self._dependents(uid):
            new = copy(dependent)
            owners = [o for o in new["metadata"]["ownerReferences"] if o["uid"] != uid]
            new["metadata"]["ownerReferences"] = owners
            if not owners:
                del new["metadata"]["ownerReferences"]
            self._store.write(dependent_key, new, dependent)
        self._finish(key, ORPHAN)

    def _finish(self, key: Key, finalizer: str) -> None:
        """Remove a finalizer; without finalizers, remove the object."""
        item = self._store.get(key)
        if item is None:
            return
        new = copy(item)
        kept = [name for name in new["metadata"].get("finalizers") or [] if name != finalizer]
        new["metadata"]["finalizers"] = kept
        if kept:
            self._store.write(key, new, item)
        else:
            self._store.write(key, None, item)

    async def _empty_namespace(self, key: Key, namespace: Object) -> None:
        left = False
        for resource in self._operations.registry:
            if not resource.namespaced:
                continue
            for item in self._store.items(resource.store_key, key[2]):
                left = True
                if "deletionTimestamp" not in item["metadata"]:
                    item_key = key_of(resource, key[2], item["metadata"]["name"])
                    await self._delete(item_key, item, resource)
        current = self._store.get(key)
        if current is not None and not self._has_content(key[2]):
            self._store.write(key, None, current)
        elif left:
            return  # the namespace's last deletion wakes the loop

    def _has_content(self, namespace: str) -> bool:
        return any(
            self._store.items(resource.store_key, namespace)
            for resource in self._operations.registry
            if resource.namespaced
        )

    async def _delete(self, key: Key, item: Object, resource: ApiResource | None = None) -> None:
        group, _, plural = key[0].rpartition("/")
        if resource is None:
            version = item["apiVersion"].rpartition("/")[2]
            resource = self._operations.registry.find(group, version, plural)
        if resource is None:
            return
        options = DeleteOptions(uid=item["metadata"]["uid"])
        context = system("serviceaccount:kube-system:generic-garbage-collector")
        await self._deletion.delete(resource, key[1], key[2], options, context)
