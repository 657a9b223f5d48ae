"""``dray-claim-controller``, ``python -m dray_claim_controller``."""

import sys

from dray.runtime.settings import load
from dray_claim_controller.settings import ControllerSettings


def main() -> None:
    """Read the settings and run."""
    settings = load(ControllerSettings, sys.argv[1:])
    # Imported late, so that invalid settings fail at once: the Kubernetes client takes a second.
    from dray_claim_controller import app

    app.main(settings)


if __name__ == "__main__":
    main()
