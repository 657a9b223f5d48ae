"""`python -m dray_sandbox.apiserver`: the sandbox's Kubernetes API as a process."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

from aiohttp import web

from dray.runtime.garbage import collect_seldom

from .requests import Tokens
from .server import ApiServerSettings, create_app, server_context
from .watch import WatchSettings


def _arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.apiserver", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port; 0: any")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    parser.add_argument("--cert", type=Path, required=True, help="server certificate, PEM")
    parser.add_argument("--key", type=Path, required=True, help="its key, PEM")
    parser.add_argument("--tokens", type=Path, required=True, help='token,user,uid,"groups" lines')
    parser.add_argument("--data-dir", type=Path, help="keep objects here (default: in memory)")
    parser.add_argument("--crds", type=Path, action="append", default=[], help="CRDs to serve")
    parser.add_argument(
        "--serve",
        action="append",
        default=[],
        metavar="GROUP/VERSION",
        help="serve an API version that is off by default: resource.k8s.io/v1beta2",
    )
    parser.add_argument("--history", type=int, default=20_000, help="changes kept for watches")
    parser.add_argument(
        "--watch-life-s",
        type=float,
        nargs=2,
        metavar=("MIN", "MAX"),
        default=(1800.0, 3600.0),
        help="a watch without timeoutSeconds ends after a random time in this range",
    )
    parser.add_argument("--bookmark-interval-s", type=float, default=10.0)
    parser.add_argument(
        "--refuse-initial-events", action="store_true", help="refuse sendInitialEvents with 422"
    )
    return parser


async def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    watch = WatchSettings(
        bookmark_interval_s=options.bookmark_interval_s,
        life_s=tuple(options.watch_life_s),
        send_initial_events=not options.refuse_initial_events,
    )
    settings = ApiServerSettings(
        options.data_dir, tuple(options.crds), options.history, watch, tuple(options.serve)
    )
    app = create_app(Tokens.load(options.tokens), settings)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    context = server_context(options.cert, options.key)
    await web.TCPSite(runner, options.host, options.port, ssl_context=context).start()
    print(f"serving on https://{options.host}:{runner.addresses[0][1]}", flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()


def main() -> int:
    """Exit code 0 when stopped, 1 when the server can't start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options = _arguments().parse_args()
    collect_seldom()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(options))
    except (OSError, ValueError) as error:
        print(f"the sandbox API server can't start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
