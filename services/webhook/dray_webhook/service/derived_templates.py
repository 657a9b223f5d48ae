"""Has the claim-controller make a pod's template before the pod is admitted."""

import asyncio
import time
from typing import Final

import msgspec
import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Bus, BusUnavailableError
from dray.messages.rpc import Derive, DeriveReply

_KNOWN_S: Final = 30.0
"""How long a template is assumed to exist: half the minimum time for which an unused template is
kept."""
_REST_S: Final = 5.0
"""How long a template is not asked for again after a failure."""
_MOST_KNOWN: Final = 10_000
_REPLY = msgspec.json.Decoder(DeriveReply)
TemplateName = tuple[str, str]
"""Namespace and name."""


class DerivedTemplates:
    """The templates that this process has asked for. Without an answer in time the pod is still
    admitted: the claim-controller makes the template when it sees the pod."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._until_s: dict[TemplateName, float] = {}
        """When a template is asked for again (monotonic)."""
        self._asking: dict[TemplateName, asyncio.Task[None]] = {}
        """Requests under way, which pods of the same shape share."""

    async def ensure(self, wanted: Derive, *, timeout_s: float) -> None:
        """Return once the template exists, or after ``timeout_s``. Never fails."""
        name = (wanted.namespace, wanted.template)
        if self._until_s.get(name, 0.0) > time.monotonic() or timeout_s <= 0:
            return
        asking = self._asking.get(name)
        if asking is None:
            asking = asyncio.create_task(self._ask(name, wanted, timeout_s), name="derive")
            self._asking[name] = asking
        await asyncio.wait([asking], timeout=timeout_s)

    async def _ask(self, name: TemplateName, wanted: Derive, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._bus.request(
                    Derive.SUBJECT, msgspec.json.encode(wanted), timeout_s=timeout_s
                )
            error = _REPLY.decode(answer).error
        except (BusUnavailableError, TimeoutError):
            error = f"the claim-controller did not answer in {timeout_s * 1000:.0f} ms"
        except DrayError as refused:
            error = str(refused)
        except msgspec.MsgspecError as undecodable:
            error = f"the claim-controller's answer can't be read: {undecodable}"
        finally:
            self._asking.pop(name, None)
        if error:
            structlog.get_logger().debug("template not made yet", template=name, why=error)
        while len(self._until_s) >= _MOST_KNOWN:
            del self._until_s[next(iter(self._until_s))]
        self._until_s[name] = time.monotonic() + (_REST_S if error else _KNOWN_S)
