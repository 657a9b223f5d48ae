"""``python -m tools.model_checker``: search every bound and print the results."""

import sys
import time

from tools.model_checker.bounds import FULL
from tools.model_checker.search import explore


def main() -> int:
    """0 if no bound has a violation."""
    wrong = 0
    for bound in FULL:
        began_s = time.process_time()
        outcome = explore(bound)
        print(f"{outcome.report()} ({time.process_time() - began_s:.0f} s)", flush=True)
        wrong += bool(outcome.violation)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
