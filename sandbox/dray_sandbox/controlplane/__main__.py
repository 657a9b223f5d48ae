"""``python -m dray_sandbox.controlplane build`` or ``run``: the real control plane alone."""

import argparse
import asyncio
import contextlib
import fcntl
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from dray.api.errors import DrayError, InvalidInputError
from dray_sandbox.access import make_credentials
from dray_sandbox.controlplane.build import GoBinary, build
from dray_sandbox.controlplane.launch import start_control_plane
from dray_sandbox.objects import Installer
from dray_sandbox.paths import stack_directory
from dray_sandbox.processes import Runner
from dray_sandbox.roles import cluster_roles


def main() -> int:
    """Exit code 0: done; 1: failed; 2: used wrongly; 130: stopped by Ctrl-C while building."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.controlplane")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build the binary if the cache has none; print its folder")
    run = verbs.add_parser("run", help="run it until Ctrl-C")
    run.add_argument("--directory", type=Path, default=stack_directory("controlplane"))
    arguments = parser.parse_args()
    try:
        asyncio.run(_build() if arguments.verb == "build" else _run(arguments.directory))
    except DrayError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say("stopped; what was compiled is kept, so that the next run goes on from there")
        return 130
    return 0


async def _build() -> None:
    print((await build(_say)).directory)


async def _run(directory: Path) -> None:
    binary = await build(_say)
    with _claimed(directory):
        await _run_in(directory, binary)


@contextlib.contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Keep other runs out of the folder: etcd there has one server."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInputError(
                f"another control plane runs in {directory}: stop it, or choose another --directory"
            ) from None
        yield


async def _run_in(directory: Path, binary: GoBinary) -> None:
    runner = Runner(directory / "logs")
    ended = _asked_to_end()
    try:
        endpoint = await start_control_plane(
            runner, binary, directory, make_credentials(directory), context="dray"
        )
        async with Installer(endpoint) as installer:
            await installer.apply(cluster_roles())
        print(f"export KUBECONFIG={endpoint.admin_kubeconfig}", flush=True)
        watching = asyncio.create_task(runner.first_exit())
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            _say(watching.result())
        watching.cancel()
        waiting.cancel()
    finally:
        await runner.stop_all()


def _asked_to_end() -> asyncio.Event:
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
