"""A picture in one piece, so that a replay can begin in the middle of a life. Pure."""

import contextlib
from dataclasses import replace

import msgspec

from dray.domain.claims import GivenUp
from dray.domain.devices import DeviceId
from dray.domain.errors import DrayError
from dray.kube.convert import claim_from, revision_of, slice_from
from dray.kube.ports import CLAIMS, PODS, SLICES, Object
from dray.recording.redaction import redacted
from dray_claim_controller.observe.counters import counted
from dray_claim_controller.observe.given_up import with_void
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenClaim, SeenPod, is_ours


class KnownPicture(msgspec.Struct, frozen=True, kw_only=True):
    """All that a picture's answers depend on; orders count."""

    claims: list[tuple[Object, int]]
    """With the newest revision that the watch has shown."""
    pods: list[SeenPod]
    plain: dict[str, dict[str, Object]]
    holders: list[tuple[DeviceId, list[str]]]
    node_revision: dict[str, int]
    revision: int
    gone: list[str]
    given_up: dict[str, GivenUp] = msgspec.field(default_factory=dict)


def known(picture: Picture) -> KnownPicture:
    """The picture as it is now, its objects redacted."""
    return KnownPicture(
        claims=[
            (redacted(CLAIMS.plural, seen.object), seen.watched_revision)
            for seen in picture.claims.values()
        ],
        pods=[_redacted(seen) for seen in picture.pods.values()],
        plain={
            plural: {name: redacted(plural, obj) for name, obj in objects.items()}
            for plural, objects in picture.plain.items()
        },
        holders=[(device, list(uids)) for device, uids in picture.cards.holders.items()],
        node_revision=picture.node_revision,
        revision=picture.revision,
        gone=picture.gone(),
        given_up=dict(picture.given_up),
    )


def _redacted(seen: SeenPod) -> SeenPod:
    return replace(seen, object=redacted(PODS.plural, seen.object)) if seen.object else seen


def restored(state: KnownPicture) -> Picture:
    """A picture that answers as the one that ``state`` was made of."""
    picture = Picture()
    picture.given_up.update(state.given_up)
    for obj, watched_revision in state.claims:
        claim = with_void(claim_from(obj), state.given_up.get(obj["metadata"]["uid"]))
        picture.restore_claim(SeenClaim(claim, obj, is_ours(claim), watched_revision))
    for pod in state.pods:
        picture.restore_pod(pod)
    picture.plain.update(state.plain)
    picture.find_unreadable()
    for name, obj in state.plain[SLICES.plural].items():
        # What can't be read now could not be read then.
        with contextlib.suppress(KeyError, TypeError, ValueError, DrayError):
            picture.cards.keep(name, slice_from(obj), revision_of(obj), counted(obj))
    picture.cards.holders = {device: dict.fromkeys(uids) for device, uids in state.holders}
    picture.node_revision = dict(state.node_revision)
    picture.revision = state.revision
    picture.restore_gone(state.gone)
    return picture
