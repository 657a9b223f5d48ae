"""``python -m dray_sandbox.scheduler --kubeconfig FILE``."""

import argparse
import asyncio

from dray.kube.api import connect
from dray.runtime.lifetime import serve
from dray.runtime.logs import configure
from dray_sandbox.scheduler.scheduler import COMPONENT, Scheduler


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.scheduler")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--scheduler-name", default=COMPONENT)
    asyncio.run(_run(parser.parse_args()))


async def _run(arguments: argparse.Namespace) -> None:
    configure("sandbox-scheduler", "0")
    kube = await connect(arguments.kubeconfig, user_agent="kube-scheduler (sandbox)")
    scheduler = Scheduler(kube, arguments.scheduler_name)
    await serve(close=(kube.close,), scheduler=scheduler.run)


if __name__ == "__main__":
    main()
