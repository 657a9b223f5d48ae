"""``python -m dray_sandbox.node.router NUMBER PID_FILE``: routes between this machine and nodes.

Run it in a new network namespace. It is ready when the file has its process id. The links to it
disappear when it ends.
"""

import os
import signal
import sys
from pathlib import Path

from dray.api.errors import PermanentError
from dray_sandbox.node.network import ClusterNetwork, run_ip

_LINK = "host"


def main() -> int:
    """Exit code 0 after a signal, 1 if the links can't be made."""
    network, pid_file = ClusterNetwork(int(sys.argv[1])), Path(sys.argv[2])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        _join_host(network, os.getppid())
        pid_file.write_text(str(os.getpid()))
        while True:
            signal.pause()
    except PermanentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        pid_file.unlink(missing_ok=True)


def _join_host(network: ClusterNetwork, host_process: int) -> None:
    """Join this namespace and that of ``host_process`` by a link. Raises PermanentError."""
    run_ip(
        [
            "link set lo up",
            f"link add {_LINK} type veth peer name {network.interface} netns {host_process}",
            f"link set {_LINK} up",
            f"address add {network.router}/32 dev {_LINK}",
            f"route add {network.host}/32 dev {_LINK}",
        ]
    )
    run_ip(
        [
            f"link set {network.interface} up",
            f"address add {network.host}/32 dev {network.interface}",
            f"route add {network.router}/32 dev {network.interface}",
            f"route add {network.subnet} via {network.router} src {network.host}",
        ],
        inside=host_process,
    )
    forward_packets()


def forward_packets() -> None:
    """Let this network namespace route."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


if __name__ == "__main__":
    sys.exit(main())
