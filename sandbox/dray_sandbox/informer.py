"""Changes of the objects of one kind, as a client-go informer reports them."""

from collections.abc import AsyncIterator

from dray.kube.ports import Changed, Deleted, Kube, Listed, Object, Resource


async def changes(kube: Kube, resource: Resource) -> AsyncIterator[list[tuple[Object, bool]]]:
    """For each watch event: the changed objects, and for each one whether it was deleted.

    A known object that is missing from a list counts as deleted. If an object of the same name has
    another uid, the old object is reported as deleted first.
    """
    known: dict[tuple[str, str], Object] = {}

    def change(obj: Object, *, deleted: bool) -> list[tuple[Object, bool]]:
        old = known.pop(key_of(obj), obj)
        replaced = old["metadata"]["uid"] != obj["metadata"]["uid"]
        if not deleted:
            known[key_of(obj)] = obj
        return [*([(old, True)] if replaced else ()), (obj, deleted)]

    async for event in kube.watch(resource):
        match event:
            case Listed(objects):
                present = {key_of(obj) for obj in objects}
                missing = [obj for key, obj in known.items() if key not in present]
                yield [
                    *(one for obj in missing for one in change(obj, deleted=True)),
                    *(one for obj in objects for one in change(obj, deleted=False)),
                ]
            case Changed(obj):
                yield change(obj, deleted=False)
            case Deleted(obj):
                yield change(obj, deleted=True)


def key_of(obj: Object) -> tuple[str, str]:
    """Namespace (empty for cluster-scoped objects) and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
