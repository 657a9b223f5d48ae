"""A snapshot of the cache, so that a replay can begin in the middle of a journal. Pure."""

import contextlib
from typing import Any

import msgspec

from dray.api.claims import GivenUp
from dray.api.devices import DeviceId
from dray.api.errors import DrayError
from dray.kube.convert import claim_from, revision_of, slice_from
from dray.kube.object_text import text_of
from dray.kube.ports import CLAIMS, PODS, SLICES, Object
from dray.recording.redaction import redacted
from dray_claim_controller.cache.abandoned_attempts import with_void
from dray_claim_controller.cache.cached_objects import (
    CachedPod,
    CachedResourceClaim,
    is_ours,
    with_object,
)
from dray_claim_controller.cache.object_cache import ObjectCache


class CacheSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state of a cache that rules depend on, in its order."""

    claims: list[tuple[Object, int]]
    """Claims, each with its newest revision that the watch has shown."""
    pods: list[dict[str, Any]]
    """The fields of ``CachedPod``, with the object in place of its text."""
    plain: dict[str, dict[str, Object]]
    holders: list[tuple[DeviceId, list[str]]]
    node_revision: dict[str, int]
    revision: int
    gone: list[str]
    gone_at: dict[str, int] = msgspec.field(default_factory=dict)
    """The revisions up to which the objects in ``gone`` were deleted, if known."""
    given_up: dict[str, GivenUp] = msgspec.field(default_factory=dict)


def take_snapshot(cache: ObjectCache) -> CacheSnapshot:
    """The current state of the cache, with redacted objects."""
    gone = cache.gone()
    return CacheSnapshot(
        claims=[
            (redacted(CLAIMS.plural, cached.object), cached.watched_revision)
            for cached in cache.claims.values()
        ],
        pods=[_snapshot_of(cached) for cached in cache.pods.values()],
        plain={
            plural: {name: redacted(plural, obj) for name, obj in objects.items()}
            for plural, objects in cache.plain.items()
        },
        holders=[(device, list(uids)) for device, uids in cache.devices.holders.items()],
        node_revision=cache.node_revision,
        revision=cache.revision,
        gone=list(gone),
        gone_at={uid: at for uid, at in gone.items() if at is not None},
        given_up=dict(cache.given_up),
    )


def _snapshot_of(cached: CachedPod) -> dict[str, Any]:
    obj = redacted(PODS.plural, cached.object) if cached.text else {}
    fields = {**msgspec.structs.asdict(cached), "object": obj}
    del fields["text"]
    return fields


def _restored(fields: dict[str, Any]) -> CachedPod:
    obj = fields["object"]
    bare = msgspec.convert({name: fields[name] for name in fields if name != "object"}, CachedPod)
    return with_object(bare, obj) if obj else bare


def restore_snapshot(state: CacheSnapshot) -> ObjectCache:
    """A cache for which rules have the same answers as for the original."""
    cache = ObjectCache()
    cache.given_up.update(state.given_up)
    for obj, watched_revision in state.claims:
        written = claim_from(obj)
        claim = with_void(written, state.given_up.get(written.uid))
        cached = CachedResourceClaim(
            claim, text_of(obj), is_ours(claim), watched_revision, written.void
        )
        cache.restore_claim(cached)
    for pod in state.pods:
        cache.restore_pod(_restored(pod))
    for plural, objects in state.plain.items():
        for name, obj in objects.items():
            cache.plain[plural].put_object(name, obj)
    cache.find_unreadable()
    for name, obj in state.plain[SLICES.plural].items():
        # A slice that is unreadable now was unreadable then.
        with contextlib.suppress(KeyError, TypeError, ValueError, DrayError):
            cache.devices.keep(name, slice_from(obj), revision_of(obj))
    cache.devices.holders = {device: dict.fromkeys(uids) for device, uids in state.holders}
    cache.node_revision = dict(state.node_revision)
    cache.revision = state.revision
    cache.restore_gone({uid: state.gone_at.get(uid) for uid in state.gone})
    return cache
