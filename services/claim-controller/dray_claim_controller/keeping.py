"""The loop of what is looked at again and again, and written where it differs."""

from collections.abc import Awaitable, Callable

import structlog

from dray.domain.errors import TemporaryError
from dray.kube.ports import NotFoundError, RefusedError
from dray.runtime.clock import Clock


async def keep_for_ever(
    keep: Callable[[], Awaitable[None]],
    clock: Clock,
    *,
    every_s: float,
    what: str,
    change: str,
) -> None:
    """``keep``, and again ``every_s`` seconds later, until cancelled.

    An error leaves the rest for the next time. ``what`` is kept and which ``change`` Kubernetes
    refused are words of the log's lines.
    """
    while True:
        try:
            await keep()
        except (TemporaryError, NotFoundError) as error:
            structlog.get_logger().debug(f"{what} not kept yet", error=str(error))
        except RefusedError as error:
            structlog.get_logger().error(f"Kubernetes refused {change}", error=str(error))
        await clock.sleep(every_s)
