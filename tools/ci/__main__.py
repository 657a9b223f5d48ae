"""``python -m tools.ci --setup-s 80``: every stage after `make setup`. ``.ci/run`` calls it.

Exit codes: 0 all stages passed; 1 one failed, or all together took longer than LIMIT_S; 130 stopped
by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.ci.report import Row, minutes, table
from tools.ci.stages import BUILD, LIMIT_S, SETUP, STAGES, CiStage
from tools.command import Command, Ended, run

BUILD_LOG: Final = Path(".cache/dray/ci/build.log")
"""Below the root of the checkout, where ``.ci/run`` starts this."""
_LOWEST_PRIORITY: Final = 19


def main() -> int:
    """Run the stages, print the table, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.ci")
    parser.add_argument("--setup-s", type=float, required=True, help="seconds `make setup` took")
    setup_s: float = parser.parse_args().setup_s
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began_s = time.monotonic() - setup_s
    rows: list[Row] = []

    def ended(stage: CiStage, how: Ended) -> None:
        rows.append(Row(stage, how))
        print(f"=== {rows[-1].line}", flush=True)

    # `.ci/run` became this process, so the processes that it waited for count as children of this.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended(SETUP, Ended(0, setup_s, used.ru_utime + used.ru_stime))
    try:
        _run_stages(ended)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    total_s = time.monotonic() - began_s
    print(table(rows, total_s), flush=True)
    if total_s > LIMIT_S:
        print(f"error: all stages together may take {minutes(LIMIT_S)}", flush=True)
    return 1 if total_s > LIMIT_S or any(row.ended.exit_code for row in rows) else 0


def _run_stages(ended: Callable[[CiStage, Ended], None]) -> None:
    """Report each stage as it ends, up to the first that fails, and the build."""
    BUILD_LOG.parent.mkdir(parents=True, exist_ok=True)
    build: Command | None = Command(BUILD.command.split(), BUILD_LOG, niceness=_LOWEST_PRIORITY)
    try:
        for stage in STAGES[1:]:
            print(f"=== {stage.command}", flush=True)
            how = run(stage.command.split())
            ended(stage, how)
            if build is not None and (built := build.poll()) is not None:
                build = None
                ended(BUILD, built)
                if built.exit_code:
                    print(BUILD_LOG.read_text(errors="replace"), flush=True)
                    return
            if how.exit_code:
                return
    finally:
        if build is not None:
            build.stop()


if __name__ == "__main__":
    sys.exit(main())
