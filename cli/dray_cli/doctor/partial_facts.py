"""Objects whose facts are published only in part, because they are too large for the bus."""

from contextlib import aclosing

from dray.api.claims import TOO_LARGE
from dray.api.devices import ResourceSlice
from dray.bus.ports import Bus, BusUnavailableError, StreamMissingError
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import SLICES, Kube, KubeUnavailableError, Object, RefusedError
from dray.messages.base import UndecodableMessageError, decode, subject_prefix
from dray.messages.facts import ClaimObserved, Fact, PodObserved, SliceObserved, TemplateObserved
from dray_claim_controller.cache.resources import read
from dray_cli.doctor.bus import AREA
from dray_cli.doctor.findings import Finding
from dray_cli.streams import read_whole
from dray_cli.text import counted

SUBJECT = "objects fit into messages"
_FACTS: dict[str, type[Fact]] = {
    f"{subject_prefix(fact)}.": fact
    for fact in (ClaimObserved, PodObserved, SliceObserved, TemplateObserved)
}
_MAX_NAMED = 10


async def partial_facts_finding(bus: Bus, kube: Kube) -> Finding:
    """The objects whose facts the claim-controller had to reduce."""
    try:
        slices = {obj["metadata"]["name"]: obj for obj in (await kube.list(SLICES)).objects}
        why = await _reduced(bus, slices)
    except (
        BusUnavailableError,
        StreamMissingError,
        UndecodableMessageError,
        RefusedError,
        KubeUnavailableError,
    ) as error:
        return Finding(AREA, SUBJECT, "unseen", str(error))
    if not why:
        return Finding(AREA, SUBJECT, "ok")
    text = (
        f"{counted(len(why), 'object')} larger than a message (max_payload of NATS): their "
        "facts are published in part, and nothing is decided by them; make them smaller, or "
        "raise max_payload"
    )
    more = (f"and {len(why) - _MAX_NAMED} more",) if len(why) > _MAX_NAMED else ()
    return Finding(AREA, SUBJECT, "lesser", text, (*why[:_MAX_NAMED], *more))


async def _reduced(bus: Bus, slices: dict[str, Object]) -> list[str]:
    """The objects, each with the reason, in the order of their names."""
    why: dict[str, str] = {}
    async with aclosing(read_whole(bus, FACTS_STREAM)) as facts:
        async for delivered in facts:
            kind = next((one for one in _FACTS if delivered.subject.startswith(one)), None)
            if kind is not None:
                name, reason = _reason(decode(delivered, _FACTS[kind]), slices)
                why[name] = reason
    return [f"{name}: {reason}" for name, reason in sorted(why.items()) if reason]


def _reason(fact: Fact, slices: dict[str, Object]) -> tuple[str, str]:
    """The object's name and why its fact was reduced; an empty reason if it was not."""
    match fact:
        case ClaimObserved(claim=claim):
            name, reason = f"claim {claim.namespace}/{claim.name}", claim.spec.too_large
        case PodObserved(pod=pod):
            keys = [one.key for term in pod.needs.node_terms for one in term]
            name = f"pod {pod.namespace}/{pod.name}"
            reason = next((key for key in keys if key.startswith(TOO_LARGE)), "")
        case TemplateObserved():
            name = f"template {fact.namespace}/{fact.name}"
            reason = fact.unusable if fact.unusable.startswith(TOO_LARGE) else ""
        case SliceObserved(slice=known):
            name, reason = f"slice {known.name}", _lacks(fact, slices.get(known.name))
        case _:
            raise AssertionError(fact)
    return name, "" if fact.deleted else reason


def _lacks(fact: SliceObserved, written: Object | None) -> str:
    """What a slice's fact lacks, compared with ``written``: its facts have no field for this."""
    seen: ResourceSlice | None = read(SLICES, written)[0] if written is not None else None
    if seen is None or seen.generation != fact.slice.generation:
        return ""
    if seen.devices and not fact.slice.devices:
        return f"{TOO_LARGE}published without its devices"
    return ""
