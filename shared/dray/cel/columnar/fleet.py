"""A fleet in columns, and the masks of its live selectors, kept true as devices change."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dray.cel.check import Checked
from dray.cel.columnar.board import Board
from dray.cel.columnar.columns import Mask
from dray.cel.columnar.exact import Exact, checked_selector
from dray.cel.columnar.forms import ERROR, STOPPED, TRUE
from dray.cel.columnar.gates import Bank
from dray.cel.columnar.plan import Part, Plans
from dray.cel.columnar.properties import Properties
from dray.cel.columnar.reads import text_of
from dray.cel.columnar.slots import Slots
from dray.cel.columnar.spreading import Found, conjunction
from dray.cel.device import DeviceView
from dray.cel.environment import DEFAULT, Environment
from dray.cel.evaluate import conjuncts
from dray.cel.tree import Expr

_FIRST_SLOTS: Final = 64
_TOGETHER: Final = 512
"""Devices whose verdicts are settled at once."""


class Masks(NamedTuple):
    """Which devices a selector matches, and on which it is an error; a bool per slot.

    Views of what the fleet keeps: they follow its changes until it grows. Don't write to them.
    """

    match: Mask
    errors: Mask


class ClauseMasks(NamedTuple):
    """What one top-level ``&&`` term gives on every device."""

    text: str
    match: Mask
    errors: Mask


class _Live(NamedTuple):
    checked: Checked
    exact: Exact
    parts: tuple[Part, ...]
    row: int


class Fleet:
    """Devices in slots, and selectors with a mask over the slots.

    A device keeps its slot until it is removed; the slots of removed devices are used again.
    Masks are ``slots`` long, in the order of the slots; where a slot is free both are false. A
    device with a broken attribute is an error of every selector, as in Kubernetes. The answers
    are those of ``Program.matches`` on each device.
    """

    def __init__(self, environment: Environment = DEFAULT) -> None:
        self._environment = environment
        self._capacity = _FIRST_SLOTS
        self._slots = Slots()
        self._usable: Mask = np.zeros(self._capacity, np.bool_)
        self._broken: Mask = np.zeros(self._capacity, np.bool_)
        self._properties = Properties(self._capacity)
        self._plans = Plans(
            lambda paths: self._properties.verdicts_on(paths, self._usable),
            dropped=self._properties.drop,
        )
        self._selectors = Bank("&&")
        self._board = Board(self._capacity)
        self._live: dict[str, _Live] = {}
        self._masks: dict[str, Masks] = {}

    @property
    def slots(self) -> int:
        """How many slots there are, free ones included: the length of every mask."""
        return self._slots.count

    def __len__(self) -> int:
        """How many devices there are."""
        return len(self._slots)

    def __contains__(self, device: Hashable) -> bool:
        return self._slots.of(device) is not None

    def slot_of(self, device: Hashable) -> int:
        """The slot of a device.

        Raises:
            KeyError: it is not there.
        """
        slot = self._slots.of(device)
        if slot is None:
            raise KeyError(device)
        return slot

    def device_at(self, slot: int) -> Hashable | None:
        """The device in a slot; None where it is free."""
        return self._slots.device_at(slot)

    def put(self, device: Hashable, view: DeviceView) -> int:
        """Add or replace a device; its slot."""
        self.put_all([(device, view)])
        return self.slot_of(device)

    def put_all(self, devices: Iterable[tuple[Hashable, DeviceView]]) -> None:
        """Add or replace devices, the masks being brought up to date once for all of them."""
        changed = []
        for device, view in devices:
            slot = self._slot_for(device)
            self._store(slot, view)
            changed.append(slot)
        self._refresh(changed)

    def remove(self, device: Hashable) -> None:
        """Forget a device, if it is there."""
        self.remove_all([device])

    def remove_all(self, devices: Iterable[Hashable]) -> None:
        """Forget devices; those that are not there are passed over."""
        freed = self._slots.release(devices)
        for slot in freed:
            self._vacate(slot)
        self._refresh(freed)

    def put_slice(self, name: Hashable, devices: Mapping[Hashable, DeviceView]) -> None:
        """Let ``devices`` be all that the slice ``name`` holds; others that it held go.

        A device that another slice held moves to this one: a driver may publish a new slice
        before it removes the old one.
        """
        self.remove_all(one for one in self._slots.held_by(name) if one not in devices)
        self.put_all(devices.items())
        self._slots.hold(name, devices)

    def remove_slice(self, name: Hashable) -> None:
        """Forget a slice, if it is there, and the devices that it still holds."""
        self.remove_all(self._slots.held_by(name))
        self._slots.forget_slice(name)

    def masks(self, expression: str) -> Masks:
        """The masks of a selector, which is live from now on.

        Raises:
            CelCompileError: it is no selector.
        """
        known = self._masks.get(expression)
        if known is not None:
            return known
        live = self._live.get(expression)
        if live is None:
            live = self._live[expression] = self._began(
                checked_selector(expression, self._environment)
            )
        found = self._masks[expression] = Masks(*self._board.masks(live.row, self.slots))
        return found

    def clauses(self, expression: str) -> tuple[ClauseMasks, ...]:
        """What each top-level ``&&`` term of a selector gives, in the order of the text.

        Raises:
            CelCompileError: it is no selector.
        """
        self.masks(expression)
        live = self._live[expression]
        terms = conjuncts(live.checked.root)
        apart = live.parts if len(live.parts) == len(terms) else [None] * len(terms)
        return tuple(
            self._told_apart(term, part, live.exact)
            for term, part in zip(terms, apart, strict=True)
        )

    @property
    def live(self) -> tuple[str, ...]:
        """The selectors whose masks are kept up to date."""
        return tuple(self._live)

    def forget(self, expression: str) -> None:
        """Keep the masks of a selector no longer, if they are kept."""
        live = self._live.pop(expression, None)
        self._masks.pop(expression, None)
        if live is not None:
            self._selectors.remove(live.row)
            self._release(live.parts)

    def _began(self, checked: Checked) -> _Live:
        exact = Exact(checked)
        parts = self._plans.clauses(conjuncts(checked.root), exact)
        found = conjunction(parts, self.slots) if parts is not None else None
        if parts is None or found is None:
            self._release(parts or ())
            parts = (self._plans.whole(checked.root, exact),)
            found = self._decided(parts[0])
        row = self._selectors.add([part.node for part in parts])
        self._board.set_row(row, *self._usable_only(found))
        return _Live(checked, exact, parts, row)

    def _keep_whole(self, expression: str) -> None:
        """Evaluate a selector in one piece from now on: a clause of it was stopped."""
        live = self._live[expression]
        self._release(live.parts)
        part = self._plans.whole(live.checked.root, live.exact)
        self._selectors.replace(live.row, [part.node])
        self._board.set_row(live.row, *self._usable_only(self._decided(part)))
        self._live[expression] = live._replace(parts=(part,))

    def _decided(self, whole: Part) -> Found:
        found = conjunction((whole,), self.slots)
        if found is None:
            raise AssertionError(f"{whole.text}: a whole can't be stopped but is an error")
        return found

    def _release(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._plans.release(part)

    def _told_apart(self, term: Expr, part: Part | None, exact: Exact) -> ClauseMasks:
        """A clause alone: by its part in the selector, if it has one and that can tell."""
        found = None if part is None else conjunction((part,), self.slots)
        if found is None:
            part = self._plans.whole(term, exact)
            found = self._decided(part)
            self._release((part,))
        match, errors = self._usable_only(found)
        return ClauseMasks(text_of(term), match, np.zeros_like(match) if errors is None else errors)

    def _usable_only(self, found: Found) -> tuple[Mask, Mask | None]:
        """Match and error, where a broken device is an error and a free slot is neither."""
        usable, broken = self._usable[: self.slots], self._broken[: self.slots]
        match, errors = found
        match &= usable
        if errors is not None:
            return match, (errors & usable) | broken
        return match, broken if broken.any() else None

    def _slot_for(self, device: Hashable) -> int:
        before = self.slots
        slot = self._slots.take(device)
        if self.slots > before:
            self._masks.clear()
        if slot >= self._capacity:
            self._grow()
        return slot

    def _grow(self) -> None:
        self._capacity += self._capacity // 2
        for name in ("_usable", "_broken"):
            wider = np.zeros(self._capacity, np.bool_)
            before: Mask = getattr(self, name)
            wider[: len(before)] = before
            setattr(self, name, wider)
        self._properties.grow(self._capacity)
        self._board.grow(self._capacity)

    def _store(self, slot: int, view: DeviceView) -> None:
        if view.broken or (view.listed and not self._environment.list_attributes):
            self._vacate(slot)
            self._broken[slot] = True
        else:
            self._broken[slot] = False
            self._usable[slot] = True
            self._properties.put(slot, view)

    def _vacate(self, slot: int) -> None:
        self._broken[slot] = False
        if self._usable[slot]:
            self._usable[slot] = False
            self._properties.clear(slot)

    def _refresh(self, changed: list[int]) -> None:
        """Bring the masks of all live selectors up to date for some slots."""
        if not self._live:
            return
        for start in range(0, len(changed), _TOGETHER):
            self._settle(np.array(changed[start : start + _TOGETHER], np.intp))

    def _settle(self, slots: NDArray[np.intp]) -> None:
        gates = self._plans.gates
        nodes = gates.blank(len(slots))
        for verdicts in self._properties.verdicts():
            rows = verdicts.table[verdicts.column.codes[slots]]
            nodes[verdicts.nodes] = rows[:, : len(verdicts.nodes)].T
        gates.settle(nodes)
        found = self._selectors.settle(nodes)
        usable = self._usable[slots]
        match = (found == TRUE) & usable
        errors = ((found == ERROR) & usable) | self._broken[slots]
        self._board.set_slots(slots, match, errors)
        stopped = np.any(((found & STOPPED) != 0) & usable, axis=1)
        for row in np.flatnonzero(stopped).tolist():
            self._keep_whole(next(text for text, live in self._live.items() if live.row == row))
