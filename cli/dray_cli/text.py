"""How verbs put what the bus says into words: the same wherever it is shown."""

from collections.abc import Iterable

from dray.api.quantities import readable_quantity
from dray.messages.decisions import PodDecision


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``3 nodes``; ``many`` where it is not ``one`` and an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def understood_text(understood: dict[str, str]) -> str:
    """What the webhook read from the annotations, in one line."""
    return ", ".join(f"{name} {value}" for name, value in understood.items())


def device_lines(devices: Iterable[tuple[str, dict[str, str]]]) -> tuple[str, ...]:
    """One line per device, with what is consumed of it."""
    return tuple(
        " ".join(
            (device, *(f"{name}={readable_quantity(text)}" for name, text in sorted(taken.items())))
        )
        for device, taken in devices
    )


def env_lines(env: dict[str, str]) -> tuple[str, ...]:
    """One line per variable; a list of cards is one card per line."""
    lines: list[str] = []
    for name, value in sorted(env.items()):
        first, *rest = value.split(",")
        lines += [f"{name}={first}", *(f"{'':{len(name)}},{item}" for item in rest)]
    return tuple(lines)


def decided_lines(pod: PodDecision) -> tuple[str, ...]:
    """One line per device that a decision gives, with what it takes of it."""
    return device_lines(
        (allocated.id.device, _taken(allocated.consumed))
        for claim in pod.claims
        for allocated in claim.allocation.devices
    )


def _taken(consumed: dict[str, str]) -> dict[str, str]:
    """Without the physical pair, of which every claim takes nothing."""
    return {name: amount for name, amount in consumed.items() if amount != "0"}
