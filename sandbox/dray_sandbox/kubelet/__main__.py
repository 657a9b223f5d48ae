"""``python -m dray_sandbox.kubelet``: stand-in kubelets of one or several nodes."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dray.api.errors import DrayError
from dray.kube import api
from dray.runtime import lifetime, logs
from dray.runtime.garbage import collect_seldom
from dray.runtime.health import HealthPages
from dray_sandbox.kubelet.kubelet import Kubelet, Kubelets
from dray_sandbox.kubelet.plan import (
    NODE_CAPACITY,
    NodePlan,
    parse_label,
    parse_node,
    parse_pairs,
)
from dray_sandbox.kubelet.timings import KubeletTimings


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line. Exits with 2 if it is wrong."""
    parser = argparse.ArgumentParser("python -m dray_sandbox.kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG")
    parser.add_argument(
        "--node",
        action="append",
        required=True,
        metavar="NAME:PLUGINS_DIR:REGISTRY_DIR:CDI_DIR[:TOKEN_FILE]",
        help="a node; may be repeated",
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NODE:KEY=VALUE[,KEY=VALUE]",
        help="labels of a node; may be repeated",
    )
    parser.add_argument(
        "--capacity",
        default=",".join(f"{key}={value}" for key, value in NODE_CAPACITY.items()),
        help="capacity of each node (default: %(default)s)",
    )
    parser.add_argument(
        "--wipe-after-s",
        type=float,
        default=KubeletTimings().wipe_s,
        help="delete the slices of a driver that is away for so long (default: %(default)s)",
    )
    parser.add_argument(
        "--renew-every-s",
        type=_period_s,
        default=KubeletTimings().renew_s,
        help="how often the lease of each node is renewed (default: %(default)s)",
    )
    parser.add_argument(
        "--containers-port",
        type=int,
        default=0,
        help="where the API server asks for logs and commands, which are refused (0: nowhere)",
    )
    parser.add_argument("--health-port", type=int, default=0, help="default: a free port")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="json", choices=("json", "console"))
    return parser.parse_args(arguments)


def _period_s(text: str) -> float:
    period_s = float(text)
    if not 0.5 <= period_s <= 150.0:
        raise argparse.ArgumentTypeError(f"{text}: expected 0.5 to 150 seconds")
    return period_s


def plans_of(options: argparse.Namespace) -> list[NodePlan]:
    """The nodes of the command line. Raises InvalidInputError."""
    capacity = NODE_CAPACITY | parse_pairs(options.capacity)
    common = {"capacity": capacity, "containers_port": options.containers_port}
    plans = [replace(parse_node(text), **common) for text in options.node]
    labels: dict[str, dict[str, str]] = {plan.name: {} for plan in plans}
    for text in options.label:
        node, pairs = parse_label(text)
        labels.setdefault(node, {}).update(pairs)
    return [replace(plan, labels=labels[plan.name]) for plan in plans]


async def run(options: argparse.Namespace, plans: Sequence[NodePlan]) -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure("kubelet", plans[0].name, level=options.log_level, format=options.log_format)
    kube = await api.connect(options.kubeconfig, user_agent="dray-kubelet-standin")
    timings = KubeletTimings(wipe_s=options.wipe_after_s, renew_s=options.renew_every_s)
    kubelets = Kubelets(kube, [Kubelet(kube, plan, timings=timings) for plan in plans])
    health = HealthPages(port=options.health_port)
    serving = partial(_serve, kubelets, options.containers_port)
    await lifetime.serve(health=health, close=(kube.close,), kubelets=serving)


async def _serve(kubelets: Kubelets, containers_port: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(kubelets.run())
        if containers_port:
            from dray_sandbox.kubelet.containers_endpoint import refuse_forever  # Slow to import

            group.create_task(refuse_forever(containers_port))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a signal, 1 on failure, 2 if the command line is wrong."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    collect_seldom()
    try:
        asyncio.run(run(options, plans_of(options)))
    except DrayError as error:
        print(f"kubelet: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
