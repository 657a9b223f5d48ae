"""What of a claim makes no sense, or can't be decided: a clear reason instead of a search."""

from collections.abc import Iterator

from dray.domain import names
from dray.domain.claims import Claim
from dray.domain.dra.asks import Ask, Request
from dray.domain.placement import HARD
from dray_allocator.fit.capacity import amount_of
from dray_allocator.fit.parameters import own_parameters
from dray_allocator.fit.percent import unreadable
from dray_allocator.lane.asking import asks_of, claim_of, shares_of


def senseless(claim: Claim, *, in_full: bool, is_compatible: bool) -> list[str]:
    """What is wrong with a claim, in words; ``in_full``: structured parameters decide, and
    ``is_compatible``: as in kube-scheduler."""
    found = [*claim.spec.unsupported, *unreadable(claim)]
    for ask in asks_of(claim):
        found += _of_ask(ask)
    if is_compatible and any(shares_of(claim)):
        found.append(
            "a percent of a card can't be asked for with placement "
            f"{names.KUBERNETES_COMPATIBLE}, for which Kubernetes has no words; ask for amounts "
            f"({names.TFLOPS_REQUEST}, {names.VRAM_REQUEST}), or have another placement "
            f"({names.PLACEMENT})"
        )
    if in_full and _is_to_be_joined(claim):
        found.append(
            f'{names.GPU_TOPOLOGY} "{HARD}" can\'t be had with placement '
            f"{names.KUBERNETES_COMPATIBLE}, or beside what Kubernetes' allocation alone can "
            "decide, which has no such rule; leave it out, or constrain the claim with "
            "matchAttribute"
        )
    if sum(map(_fewest, claim_of(claim).requests)) > names.MAX_GPUS_PER_CLAIM:
        found.append(f"more than {names.MAX_GPUS_PER_CLAIM} devices")
    return list(dict.fromkeys(found))


def _is_to_be_joined(claim: Claim) -> bool:
    """Whether the claim says by itself that its cards must be joined, and may get several."""
    says = any(one.get(names.TOPOLOGY_FIELD) == HARD for one in own_parameters(claim))
    asks = [request.first_available or (request.exactly,) for request in claim_of(claim).requests]
    is_one = len(asks) == 1 and all(
        ask is not None and ask.mode == "ExactCount" and ask.count == 1 for ask in asks[0]
    )
    return says and bool(asks) and not is_one


def _fewest(request: Request) -> int:
    """Devices that a request takes at least; of mode All nothing is known yet."""
    asks = request.first_available or ((request.exactly,) if request.exactly else ())
    return min((one.count if one.mode == "ExactCount" else 0 for one in asks), default=0)


def _of_ask(ask: Ask) -> Iterator[str]:
    if ask.mode not in ("ExactCount", "All"):
        yield f"request {ask.name}: allocationMode {ask.mode}"
    elif ask.mode == "ExactCount" and ask.count < 1:
        yield f"request {ask.name}: count {ask.count} is below 1"
    for key, text in sorted((ask.capacity or {}).items()):
        if (amount := amount_of(text)) is None or amount < 0:
            what = "is no quantity" if amount is None else "is negative"
            yield f"request {ask.name}: {key} {text} {what}"
