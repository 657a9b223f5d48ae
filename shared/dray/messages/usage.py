"""The use of GPUs, for people. No decision depends on it."""

from typing import ClassVar

import msgspec

from dray.messages.base import Kind, Message


class UsedGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The use of one GPU or MIG instance at one moment. None: the driver does not report it."""

    uuid: str
    memory_used_bytes: int | None = None
    gpu_percent: int | None = None
    """Percentage of the time in which a kernel ran."""
    memory_percent: int | None = None
    """Percentage of the time in which memory was read or written."""
    temperature_c: int | None = None
    power_w: float | None = None
    xid: int = 0
    """The last XID since the start of the node-agent; 0: none."""
    ecc_corrected: int | None = None
    """Number of corrected errors since the driver was loaded."""
    ecc_uncorrected: int | None = None


class GpusUsed(Message, frozen=True, kw_only=True):
    """The use of a node's GPUs, as its node-agent last read it."""

    KIND: ClassVar[Kind] = "usage"
    NAME: ClassVar[str] = "gpus"

    node: str
    now_unix_s: float
    gpus: tuple[UsedGpu, ...]

    def ids(self) -> tuple[str, ...]:
        return (self.node,)

    def key(self) -> str:
        return f"{self.node}@{self.now_unix_s:.6f}"


USAGE: tuple[type[Message], ...] = (GpusUsed,)
