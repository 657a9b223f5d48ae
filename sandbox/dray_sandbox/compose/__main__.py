"""``python -m dray_sandbox.compose prepare|install``: the two one-shot containers of
``deploy/compose``.

``prepare`` writes the files that the other containers need, before they start; ``install`` creates
dray's objects in the API server and registers the webhook.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from dray.api.errors import DrayError
from dray_sandbox.access import ADMIN
from dray_sandbox.compose.files import known_endpoint, prepare
from dray_sandbox.compose.objects import install


def main() -> int:
    """Exit code 0: done; 1: failed; the reason is printed."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.compose", description=__doc__)
    parser.add_argument("step", choices=("prepare", "install"))
    parser.add_argument("--state", type=Path, required=True, help="folder of all containers")
    parser.add_argument("--people", type=Path, help="folder of this machine, for a kubeconfig")
    parser.add_argument("--nodes", default="", help="names, separated by commas")
    parser.add_argument("--api", default="api:6443", help="the API server, for containers")
    parser.add_argument("--published", type=int, default=6443, help="its port on this machine")
    parser.add_argument("--nats", default="nats:4222", help="NATS, for containers")
    parser.add_argument("--webhook", default="webhook:8443", help="the webhook, for the API server")
    options = parser.parse_args()
    try:
        if options.step == "prepare":
            nodes = tuple(name for name in options.nodes.split(",") if name)
            people = options.people or options.state
            made = prepare(
                options.state,
                people,
                nodes,
                api=options.api,
                nats=options.nats,
                published=options.published,
            )
            print("made" if made else "kept", options.state)
        else:
            reached = known_endpoint(options.state, options.api)
            kubeconfig = options.state / "access" / f"{ADMIN}.kubeconfig"
            folder = options.state / "webhook"
            asyncio.run(install(reached, kubeconfig, options.webhook, folder))
            print("dray is installed")
    except (DrayError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
