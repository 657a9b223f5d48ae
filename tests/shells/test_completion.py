"""bash, zsh and fish complete verbs, options and names of a local stack's cluster.

Each shell runs interactively on a terminal of its own and is sent keys, as a person types them.
`make test-shells` runs this, as a stage of `.ci/run`; it installs the shells that are missing with
apt-get, as root.
"""

import asyncio
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.kube.api import connect
from dray.kube.ports import POOLS
from dray_sandbox.layout import StackOptions
from dray_sandbox.stack import Stack
from dray_sandbox.stack_file import StackFile

pytestmark = pytest.mark.shells
WITHIN_S = 30.0
BIN = Path(sys.executable).parent
STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(dray completion bash)"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -U compinit; compinit -u -D; source <(dray completion zsh)",
    ),
    "fish": (["fish", "--no-config", "-i"], "dray completion fish | source"),
}
"""By shell, how it is started and what its start-up file has."""
_ESCAPES = re.compile(r"\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>78()][AB0-9]?)")


@pytest.fixture(scope="module")
def stack() -> Iterator[StackFile]:
    async def start() -> None:
        await made.start()
        kube = await connect(made.record.kubeconfig, user_agent="test")
        try:
            await kube.create(POOLS, {"metadata": {"name": "training"}, "spec": {}})
        finally:
            await kube.close()

    made = Stack(StackOptions(name="shells", nodes=()))
    with asyncio.Runner() as runner:
        runner.run(start())
        try:
            yield made.record
        finally:
            runner.run(made.stop())


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, name: str, kubeconfig: str, home: Path) -> None:
        command, self.setup = STARTS[name]
        parent, child = pty.openpty()
        self._terminal = parent
        self.screen = ""
        environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(home),
            "KUBECONFIG": kubeconfig,
            "TERM": "xterm",
            "COLUMNS": "80",
            "LINES": "24",
            "PS1": "$ ",
        }
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],  # fish ends without a terminal of its own
            stdin=child,
            stdout=child,
            stderr=child,
            env=environment,
        )
        os.close(child)

    def send(self, keys: str) -> None:
        """Type."""
        self.screen = ""
        os.write(self._terminal, keys.encode())

    def shows(self, text: str) -> None:
        """Wait until the terminal has shown a text since the last keys."""
        deadline = time.monotonic() + WITHIN_S
        while text not in self.screen:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"no {text!r} in {self.screen!r}"
            if select.select([self._terminal], [], [], left_s)[0]:
                read = os.read(self._terminal, 65536).decode(errors="replace")
                self.screen += _ESCAPES.sub("", read)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture(params=STARTS)
def shell(request: pytest.FixtureRequest, stack: StackFile, tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(request.param, stack.kubeconfig, tmp_path)
    try:
        opened.send(f"{opened.setup}; echo re''ady\n")
        opened.shows("ready")
        yield opened
    finally:
        opened.close()


def test_a_verb_an_option_and_a_name_of_the_cluster_are_completed(shell: Shell) -> None:
    shell.send("dray gpu\t")
    shell.shows("dray gpus ")
    shell.send("--po\t")
    shell.shows("--pool ")
    shell.send("tr\t")
    shell.shows("training")
