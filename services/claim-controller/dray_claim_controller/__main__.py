"""``dray-claim-controller``, ``python -m dray_claim_controller``."""

import argparse

from dray.runtime.settings import load
from dray_claim_controller.settings import ControllerSettings


def main() -> None:
    """Read the settings and run."""
    argparse.ArgumentParser(
        prog="dray-claim-controller",
        description="Publishes what Kubernetes holds, and carries the allocators' decisions out. "
        "Settings come from DRAY_… variables and the TOML file that DRAY_CONFIG names.",
    ).parse_args()
    settings = load(ControllerSettings)
    # Only now: the Kubernetes client takes a second to import, and wrong settings none.
    from dray_claim_controller import app

    app.main(settings)


if __name__ == "__main__":
    main()
