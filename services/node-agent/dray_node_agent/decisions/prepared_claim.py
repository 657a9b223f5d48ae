"""Prepared claims, as stored in the checkpoint and reported to the kubelet."""

from typing import Any, Literal

import msgspec

Phase = Literal["PrepareStarted", "PrepareCompleted"]
"""Earlier releases wrote an entry in two steps; an entry with only the first one is dropped."""


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prepared allocation result."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None
    admin_access: bool = False
    consumed: dict[str, str] = {}
    """Virtual capacities as text; a result that stated none consumes all."""

    @property
    def whole(self) -> bool:
        """Whether the result takes the whole device: it has no share id."""
        return self.share_id is None and not self.admin_access


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claim and the result of its preparation."""

    uid: str
    namespace: str
    name: str
    phase: Phase
    """``PrepareCompleted``: an entry has all that a restart needs to write its CDI file."""
    devices: tuple[PreparedDevice, ...]
    cdi: dict[str, Any]
    """The CDI specification, written again after a reboot."""
    env: dict[str, str] = {}
    traceparent: str = ""
