"""``python -m dray_sandbox.controllers --kubeconfig FILE [--template-retry watch|backoff]``."""

import argparse
import asyncio

from dray.kube.api import connect
from dray.runtime.lifetime import serve
from dray.runtime.logs import configure
from dray_sandbox.controllers.claim_controller import ResourceClaimController
from dray_sandbox.controllers.node_lifecycle import NodeLifecycleController


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.controllers")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument(
        "--template-retry",
        choices=("watch", "backoff"),
        default="watch",
        help="how a pod notices its missing template: by a watch, as 1.36 does, or by retries "
        "with backoff, as 1.34 does",
    )
    asyncio.run(_run(parser.parse_args()))


async def _run(arguments: argparse.Namespace) -> None:
    configure("sandbox-controllers", "0")
    kube = await connect(arguments.kubeconfig, user_agent="kube-controller-manager (sandbox)")
    controller = ResourceClaimController(kube, watch_templates=arguments.template_retry == "watch")
    nodes = NodeLifecycleController(kube)
    await serve(close=(kube.close,), resourceclaims=controller.run, nodes=nodes.run)


if __name__ == "__main__":
    main()
