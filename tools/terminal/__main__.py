"""``python -m tools.terminal``: runs the commands of the README on a local stack, and writes
``docs/terminal.svg``. Needs kubectl; takes about a minute."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tools.terminal.screen import COLUMNS, ROWS, ScreenLine, svg

_STACK = "terminal"
_EXAMPLE = "examples/01-quick-start"
_TARGET = Path("docs/terminal.svg")
_DURATION_S = 40.0
_READ_S = {
    "dray explain": 3.5,
    "dray gpus": 4.0,
    "dray top": 5.0,
    "dray trace": 5.0,
}
"""Time to read what a command printed, before times are scaled."""
_SETTLE_S = 3.0
"""Time until an applied object has had its effect; it is not shown."""
_COMMANDS = (
    f"kubectl apply -f {_EXAMPLE}/01-scheduling-config.yaml -f {_EXAMPLE}/03-gpu-pools.yaml",
    f"dray convert -f {_EXAMPLE}/02-resourceclaim-template.yaml | kubectl apply -f -",
    f"kubectl apply -f {_EXAMPLE}/04-pods.yaml",
    f"kubectl apply -f {_EXAMPLE}/06-cannot-fit.yaml",
    "kubectl get pods",
    "dray explain pod/my-workload",
    "dray explain pod/needs-every-card",
    "dray gpus --pool my-gpu-pool",
    "dray top --once",
    "dray trace pod/my-workload",
)
_LAST_S = 6.0
_TYPED_S = 0.6
_LONGEST_S = 3.0
"""Longer waits are shortened to this."""


def main() -> None:
    """Run the commands, and write the picture.

    Raises:
        subprocess.CalledProcessError: the stack did not start.
    """
    environment = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "TERM": "xterm-256color",
        "DRAY_STACK": _STACK,
    }
    environment.pop("NO_COLOR", None)
    up = ["dray", "up", "--detach", "--stack", _STACK]
    try:
        plain = environment | {"TERM": "dumb"}  # the picture has no live lines
        lines, at_s = _recorded(" ".join(up), up, plain, 0.5)
        exported = next(line.text for line in lines if line.text.startswith("export KUBECONFIG="))
        environment["KUBECONFIG"] = exported.partition("=")[2].strip()
        lines = [_shorter(line) for line in lines]
        for command in _COMMANDS:
            shown, at_s = _recorded(command, ["bash", "-c", command], environment, at_s)
            lines += shown
            time.sleep(_SETTLE_S if "apply" in command else 0.0)
    finally:
        subprocess.run(["dray", "down", "--stack", _STACK], check=False, env=environment)
    scale = (_DURATION_S - _LAST_S) / at_s
    scaled = [ScreenLine(round(line.at_s * scale, 2), line.text) for line in lines]
    _TARGET.write_text(svg(scaled, _DURATION_S))
    sys.stdout.write(f"{_TARGET}: {len(lines)} lines, {_TARGET.stat().st_size // 1024} KiB\n")


def _shorter(line: ScreenLine) -> ScreenLine:
    """The line without the paths of this machine."""
    return ScreenLine(line.at_s, re.sub(r"=\S*/\.cache/", "=~/dray/.cache/", line.text))


def _recorded(
    shown: str, command: list[str], environment: dict[str, str], at_s: float
) -> tuple[list[ScreenLine], float]:
    """The lines of a command from ``at_s`` on, and when the next command may begin."""
    lines = [ScreenLine(at_s, part) for part in _prompted(shown)]
    at_s += _TYPED_S
    last_s = time.monotonic()
    for text in _run(command, environment):
        now_s = time.monotonic()
        at_s += min(now_s - last_s, _LONGEST_S)
        last_s = now_s
        lines.append(ScreenLine(at_s, text))
    lines.append(ScreenLine(at_s, ""))
    return lines, at_s + next((s for name, s in _READ_S.items() if shown.startswith(name)), 1.5)


def _prompted(command: str) -> Iterator[str]:
    """The command behind a prompt, in lines that fit."""
    line = "$"
    for word in command.split():
        if len(line) + len(word) + 3 > COLUMNS:
            yield f"{line} \\"
            line = "   "
        line += f" {word}"
    yield line


def _run(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    """The lines that a command prints to a terminal.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdout=child, stderr=child, env=environment)
    os.close(child)
    rest = b""
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:  # Linux' end of a terminal.
            data = b""
        if not data:
            break
        *complete, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace").rstrip() for line in complete)
    os.close(parent)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)


if __name__ == "__main__":
    main()
