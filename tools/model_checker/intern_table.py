"""Values and states by number, so that states of the search are small and shared."""

import io
import pickle
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import msgspec

from dray_allocator.state.state import AllocatorState

T = TypeVar("T")


class Interned(Generic[T]):
    """Values by number, from 0. Equal values share a number."""

    def __init__(self) -> None:
        self._of: dict[Hashable, int] = {}
        self._values: list[T] = []

    def of(self, key: Hashable, value: T) -> int:
        """The number of the value with this key; ``value`` is stored if the key is new."""
        known = self._of.get(key)
        if known is None:
            known = self._of[key] = len(self._values)
            self._values.append(value)
        return known

    def find(self, key: Hashable) -> int | None:
        """The number of the value with this key, if there is one."""
        return self._of.get(key)

    def __getitem__(self, number: int) -> T:
        return self._values[number]

    def __len__(self) -> int:
        return len(self._values)


class StateCopies:
    """Pickled states, which share frozen values by number."""

    def __init__(self) -> None:
        self._shared: list[object] = []
        self._number_of: dict[int, int] = {}
        self._frozen: dict[type, bool] = {}

    def dump(self, state: AllocatorState) -> bytes:
        """The state as bytes."""
        written = io.BytesIO()
        _Writer(written, self).dump(state)
        return written.getvalue()

    def load(self, copy: bytes) -> AllocatorState:
        """A new copy of the state."""
        state: AllocatorState = _Reader(io.BytesIO(copy), self._shared).load()
        return state

    def number(self, value: object) -> int | None:
        """The number of a frozen value; None for another value, which is copied."""
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
    def __init__(self, file: io.BytesIO, copies: StateCopies) -> None:
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
