"""Commands: requests to one service, which may refuse."""

from typing import ClassVar

from dray.messages.base import Kind, Message


class VoidClaim(Message, frozen=True, kw_only=True):
    """Asks the claim-controller to void attempts of a claim up to ``attempt``.

    The answer is the claim's next fact: allocated, or void and unallocated.
    """

    KIND: ClassVar[Kind] = "cmd"
    NAME: ClassVar[str] = "claim.void"

    domain: str
    claim_uid: str
    namespace: str
    name: str
    attempt: int
    reason: str
    asked: int = 0
    """Number of the request: a repeated one is a new message."""

    def ids(self) -> tuple[str, ...]:
        return (self.domain, self.claim_uid)

    def key(self) -> str:
        return f"{self.claim_uid}.{self.attempt}.{self.asked}"


COMMANDS: tuple[type[Message], ...] = (VoidClaim,)
