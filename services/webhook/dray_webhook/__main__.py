"""``dray-webhook`` and ``python -m dray_webhook``."""

import asyncio
import sys

from dray.api.errors import DrayError
from dray.runtime.settings import load
from dray_webhook.app import run
from dray_webhook.settings import WebhookSettings


def main() -> int:
    """Run the webhook; 0 after an orderly end, 1 after a failure, 2 for wrong settings."""
    try:
        asyncio.run(run(load(WebhookSettings, sys.argv[1:])))
    except DrayError as error:
        print(f"dray: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
