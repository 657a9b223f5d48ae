"""Answers nats-server's authentication callout; any instance may, leading or not."""

from collections.abc import Mapping
from typing import Any, Final

import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Bus, Request
from dray.kube.ports import TOKEN_REVIEWS, Kube
from dray.runtime.backoff import Backoff
from dray.runtime.clock import Clock
from dray_claim_controller.identities.decisions import (
    Asking,
    IdentityRefusedError,
    asking_of,
    node_of,
    response_claims,
    token_review,
    user_claims,
)
from dray_claim_controller.identities.newest_first import NewestFirst
from dray_claim_controller.identities.signing import AccountKey

_SUBJECT: Final = "$SYS.REQ.USER.AUTH"
_QUEUE: Final = "identities"
_AT_ONCE: Final = 16
"""Concurrent reviews: a flood of connections must not become a flood for the API server."""
_PATIENCE_S: Final = 3.0
"""The same as nats-server's ``authorization { timeout }``: after it the connection is gone."""


class IdentityServer:
    """Issues users for node-agents. ``user``: the service account they all have."""

    def __init__(
        self,
        bus: Bus,
        kube: Kube,
        clock: Clock,
        *,
        key: AccountKey,
        user: str,
        audience: str,
        lifetime_s: float,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._clock = clock
        self._key = key
        self._user = user
        self._audience = audience
        self._lifetime_s = lifetime_s
        # After an outage of the API server, old connections must not delay those that still wait.
        self._reviews = NewestFirst(_AT_ONCE, patience_s=_PATIENCE_S, now_s=clock.monotonic_s)

    async def run(self) -> None:
        """Answer for ever."""
        backoff = Backoff(0.1, 5.0)
        while True:
            try:
                await self._bus.serve(_SUBJECT, self.answer, queue=_QUEUE)
            except DrayError as error:
                structlog.get_logger().warning("node identities unanswered", why=str(error))
            await self._clock.sleep(backoff.next_s())

    async def answer(self, request: Request) -> bytes | None:
        """A signed answer; None if the request can't be read."""
        log = structlog.get_logger()
        try:
            asking = asking_of(request.payload)
        except IdentityRefusedError as error:
            log.error("an authentication request could not be read; ignored", why=str(error))
            return None
        try:
            user = await self._user_for(asking)
        except DrayError as error:
            log.warning("a connection to NATS was refused", why=str(error))
            return self._signed(asking, error=str(error))
        log.info("a node-agent connects to NATS", node=user["name"])
        return self._signed(asking, user=self._key.signed(user))

    async def _user_for(self, asking: Asking) -> Mapping[str, Any]:
        review = token_review(asking, self._audience)
        async with self._reviews.turn():
            answer = await self._kube.create(TOKEN_REVIEWS, review)
        node = node_of(answer, user=self._user, audience=self._audience)
        now_unix_s = self._clock.now_unix_s()
        return user_claims(asking, node, now_unix_s=now_unix_s, lifetime_s=self._lifetime_s)

    def _signed(self, asking: Asking, *, user: str = "", error: str = "") -> bytes:
        now_unix_s = self._clock.now_unix_s()
        claims = response_claims(asking, now_unix_s=now_unix_s, user=user, error=error)
        return self._key.signed(claims).encode()
