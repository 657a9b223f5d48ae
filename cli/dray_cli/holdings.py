"""What claims hold, as ``dray explain`` shows it."""

from collections.abc import Iterator

from dray.kube.ports import Object


def holdings_of(claims: tuple[Object, ...], node: str, driver: str = "") -> list[str]:
    """One line per device, of one driver or of all, with the ``node`` where it is used; its pool is
    named where that is not the node's."""
    lines = []
    for claim in claims:
        for result in results_of(claim, driver):
            consumed = result.get("consumedCapacity") or {}
            amounts = " ".join(f"{k}={v}" for k, v in sorted(consumed.items()) if v != "0")
            pool = result["pool"]
            where = f"on {pool}" if node in ("", pool) else f"of pool {pool} on {node}"
            lines.append(f"  {result['device']} {where}  {amounts}".rstrip())
    return lines


def results_of(claim: Object, driver: str = "") -> Iterator[Object]:
    """The devices that a claim holds, of one driver or of all."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not driver or result.get("driver") == driver:
            yield result
