"""``python -m dray_sandbox.controlplane build`` or ``run``: only the real control plane."""

import argparse
import asyncio
import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

from dray.api.errors import DrayError, InvalidInputError
from dray_sandbox.access import make_credentials
from dray_sandbox.chart import cluster_roles
from dray_sandbox.controlplane.build import GoBinary, build
from dray_sandbox.controlplane.launch import start_control_plane
from dray_sandbox.objects import Installer
from dray_sandbox.paths import stack_directory
from dray_sandbox.processes import Runner, end_signals, first_done


def main() -> int:
    """Exit code 0: done; 1: failed; 2: wrong command line; 130: Ctrl-C during the build."""
    parser = argparse.ArgumentParser(prog="python -m dray_sandbox.controlplane")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build the binary if the cache has none; print its folder")
    run = verbs.add_parser("run", help="run it until Ctrl-C")
    run.add_argument("--directory", type=Path, default=stack_directory("controlplane"))
    arguments = parser.parse_args()
    try:
        asyncio.run(_build() if arguments.verb == "build" else _run(arguments.directory))
    except DrayError as error:
        _print_line(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _print_line("stopped; the next run continues with what was compiled")
        return 130
    return 0


async def _build() -> None:
    print((await build(_print_line)).directory)


async def _run(directory: Path) -> None:
    binary = await build(_print_line)
    with _directory_lock(directory):
        await _run_in(directory, binary)


@contextlib.contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    """Lock the folder: its etcd data must have only one server."""
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
    with end_signals() as ended:
        try:
            endpoint = await start_control_plane(
                runner, binary, directory, make_credentials(directory), context="dray"
            )
            async with Installer(endpoint) as installer:
                await installer.apply(cluster_roles())
            print(f"export KUBECONFIG={endpoint.admin_kubeconfig}", flush=True)
            exited = asyncio.create_task(runner.first_exit())
            await first_done(exited, ended)
            if exited.done():
                _print_line(exited.result())
            exited.cancel()
        finally:
            await runner.stop_all()


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
