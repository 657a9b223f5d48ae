"""Copies of a core's state that share what never changes."""

import io
import pickle
from typing import Any

import msgspec

from dray_allocator.state.state import AllocatorState


class Copies:
    """States as bytes; frozen values in them are kept once and named by number."""

    def __init__(self) -> None:
        self._shared: list[object] = []
        self._number_of: dict[int, int] = {}
        self._frozen: dict[type, bool] = {}

    def made(self, state: AllocatorState) -> bytes:
        """The state, to be taken as often as wanted."""
        written = io.BytesIO()
        _Writer(written, self).dump(state)
        return written.getvalue()

    def taken(self, copy: bytes) -> AllocatorState:
        """A state of its own."""
        state: AllocatorState = _Reader(io.BytesIO(copy), self._shared).load()
        return state

    def number(self, value: object) -> int | None:
        """Of a frozen value; None for any other, which is copied."""
        kind = value.__class__
        frozen = self._frozen.get(kind)
        if frozen is None:
            frozen = self._frozen[kind] = _is_frozen(kind)
        if not frozen:
            return None
        known = self._number_of.get(id(value))
        if known is None:
            known = self._number_of[id(value)] = len(self._shared)
            self._shared.append(value)
        return known


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, copies: Copies) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._copies = copies

    def persistent_id(self, obj: Any) -> int | None:
        return self._copies.number(obj)


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[object]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: int) -> object:
        return self._shared[pid]


def _is_frozen(kind: type) -> bool:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_config__.frozen
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen
