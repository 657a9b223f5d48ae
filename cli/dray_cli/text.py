"""Texts that several verbs print in the same form."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from dray.api.quantities import readable_quantity

if TYPE_CHECKING:
    from dray.messages.decisions import PodDecision

_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def columns() -> int:
    """The terminal's width; 80 in a pipe."""
    return shutil.get_terminal_size((80, 24)).columns


def wrapped(text: str, width: int, deeper: int = 2) -> str:
    """Wrap the lines of a text between words; ``deeper``: extra indentation of wrapped parts."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line.strip(),
            width,
            initial_indent=indent,
            subsequent_indent=indent + deeper * " ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def wrapped_on_terminal(text: str) -> str:
    """The text, wrapped to the terminal's width; unchanged in a pipe."""
    return wrapped(text, columns()) if sys.stdout.isatty() else text


def abbreviated(text: str) -> str:
    """The text with each UUID cut to its first eight digits."""
    return _UUID.sub(r"\1…", text)


def styled(text: str, **style: Any) -> str:
    """The text in ``click.style``'s colours; plain in a pipe, or if ``NO_COLOR`` is set."""
    is_plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return text if is_plain else click.style(text, **style)


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``3 nodes``; ``many``: the plural, if it is not ``one`` with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def understood_text(understood: dict[str, str]) -> str:
    """What the webhook read from the annotations, in one line."""
    return ", ".join(f"{name} {value}" for name, value in understood.items())


def device_lines(devices: Iterable[tuple[str, dict[str, str]]]) -> tuple[str, ...]:
    """One line per device, with the amounts that are consumed."""
    return tuple(
        " ".join(
            (device, *(f"{name}={readable_quantity(text)}" for name, text in sorted(taken.items())))
        )
        for device, taken in devices
    )


def env_lines(env: dict[str, str]) -> tuple[str, ...]:
    """One line per variable; lists, such as those of cards, have one entry per line."""
    lines: list[str] = []
    for name, value in sorted(env.items()):
        first, *rest = value.split(",")
        lines += [f"{name}={first}", *(f"{'':{len(name)}},{item}" for item in rest)]
    return tuple(lines)


def decided_lines(pod: "PodDecision") -> tuple[str, ...]:
    """One line per device that a decision gives, with the amounts that are consumed."""
    return device_lines(
        (allocated.id.device, _taken(allocated.consumed))
        for claim in pod.claims
        for allocated in claim.allocation.devices
    )


def _taken(consumed: dict[str, str]) -> dict[str, str]:
    """The amounts above 0: no claim consumes the physical capacities ``tflops`` and ``vram``."""
    return {name: amount for name, amount in consumed.items() if amount != "0"}
