"""What was prepared for a claim: values that the checkpoint keeps and the kubelet is told."""

from typing import Any, Literal

import msgspec

Phase = Literal["PrepareStarted", "PrepareCompleted"]


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One allocation result, made ready."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None
    admin_access: bool = False
    consumed: dict[str, str] = {}
    """Virtual capacities as text; a result that stated none took them all."""

    @property
    def whole(self) -> bool:
        """Whether the card is held as a whole: a result without a share."""
        return self.share_id is None and not self.admin_access


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claim with everything that was done for it."""

    uid: str
    namespace: str
    name: str
    phase: Phase
    devices: tuple[PreparedDevice, ...]
    cdi: dict[str, Any]
    """The CDI specification, to write the same again after a reboot."""
    env: dict[str, str] = {}
    traceparent: str = ""
