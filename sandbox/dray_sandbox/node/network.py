"""The network of a cluster of real nodes: its addresses, and how they are joined.

A separate network namespace routes between this machine and the nodes. Every link is a veth pair,
which disappears with the namespace at either end, so nothing stays behind. Firewall rules of this
machine, such as Docker's, do not affect the traffic between two nodes.

    this machine 10.64.0.1 ── 10.64.0.2 router ── 10.64.1.1 node 1: pods 10.64.1.2 to .254
                                              └── 10.64.2.1 node 2: pods 10.64.2.2 to .254
"""

import ipaddress
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dray.api.errors import PermanentError

SERVICES = "10.0.0.0/24"
"""ClusterIPs. They are valid only inside nodes."""
API_SERVICE = "10.0.0.1"
API_NAMES = tuple(
    f"kubernetes{suffix}"
    for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local")
)
"""The API server's names in pods."""
DNS_SERVICE = "10.0.0.10"
_NUMBERS = range(64, 128)


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The addresses of a node."""

    address: str
    pods: str
    """The subnet of its pods; its first address is the node's."""
    first_pod: str
    link: str
    """Name of the router's end of the link."""


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """The addresses ``10.<number>.0.0/16``."""

    number: int

    @property
    def subnet(self) -> str:
        """All addresses."""
        return f"10.{self.number}.0.0/16"

    @property
    def host(self) -> str:
        """This machine, as nodes and pods reach it."""
        return f"10.{self.number}.0.1"

    @property
    def router(self) -> str:
        """The next hop of this machine and of every node."""
        return f"10.{self.number}.0.2"

    @property
    def interface(self) -> str:
        """This machine's end of the link to the router."""
        return f"dray{self.number}"

    def node(self, index: int) -> NodeNetwork:
        """The addresses of the node with that index, which starts at 1."""
        base = f"10.{self.number}.{index}"
        return NodeNetwork(f"{base}.1", f"{base}.0/24", f"{base}.2", f"node{index}")


def choose_network() -> ClusterNetwork:
    """A network to whose addresses this machine has no route.

    Raises:
        PermanentError: there is none, or the routes can't be read.
    """
    routes = json.loads(run_ip(["route show table all"], flags=("-4", "-json")))
    used = [route["dst"] for route in routes if route["dst"] != "default"]
    return free_network(used)


def free_network(routes: Iterable[str]) -> ClusterNetwork:
    """The first network that overlaps none of ``routes``. Raises PermanentError."""
    used = [ipaddress.ip_network(route, strict=False) for route in routes]
    for number in _NUMBERS:
        network = ClusterNetwork(number)
        if not any(ipaddress.ip_network(network.subnet).overlaps(other) for other in used):
            return network
    first, last = ClusterNetwork(_NUMBERS[0]), ClusterNetwork(_NUMBERS[-1])
    raise PermanentError(
        f"this machine has routes to all of {first.subnet} to {last.subnet}, and a cluster of real "
        "nodes needs one of them: stop other such stacks"
    )


def run_ip(commands: Sequence[str], *, inside: int | None = None, flags: Sequence[str] = ()) -> str:
    """The output of iproute2 for these commands, in the network namespace of process ``inside``.

    Raises:
        PermanentError: a command failed.
    """
    enter = () if inside is None else ("nsenter", f"--net=/proc/{inside}/ns/net")
    done = subprocess.run(
        [*enter, "ip", *flags, "-batch", "-"],
        input="\n".join([*commands, ""]),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise PermanentError(f"`ip {'; '.join(commands)}` failed: {done.stderr.strip()}")
    return done.stdout
