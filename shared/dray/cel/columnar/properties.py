"""The columns of a fleet: one per property, and one per set of properties that a clause reads."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from dray.cel.columnar.columns import ABSENT, Column, Mask, key_of
from dray.cel.columnar.facts import LAYOUT, MAPS, Path, facts_of, named
from dray.cel.columnar.reads import EVERY
from dray.cel.columnar.verdicts import Verdicts
from dray.cel.device import DeviceView
from dray.cel.values import Value

Facts = Iterator[tuple[Path, Value]]
_RADIX_LIMIT: Final = 2**62


class Joint(Column):
    """Distinct combinations of the codes of several columns; its values are tuples of codes.

    Slots of usable devices always have a code, also where all parts are absent.
    """

    def __init__(self, slots: int, wanted: tuple[Path, ...]) -> None:
        super().__init__(slots, may_lack=False)
        self.wanted = wanted
        self.paths: list[Path] = []
        self.parts: list[Column] = []

    def reads(self, path: Path) -> bool:
        """Whether ``path`` is one of those wanted, or covered by one that names every name."""
        return any(
            path.field == one.field
            and one.domain in (path.domain, EVERY)
            and one.name in (path.name, EVERY)
            for one in self.wanted
        )

    def extend(self, path: Path, column: Column) -> None:
        """Take in a column that no device has a value in yet: no combination changes."""
        self.paths.append(path)
        self.parts.append(column)
        self.values = [None if value is None else (*value, ABSENT) for value in self.values]
        self._known = {
            key_of(value): code for code, value in enumerate(self.values) if value is not None
        }

    def refresh(self, slot: int) -> None:
        """Follow the parts, which changed at ``slot``."""
        self.put(slot, tuple([int(part.codes[slot]) for part in self.parts]))

    def fill(self, usable: Mask) -> None:
        """Take in all usable slots at once."""
        slots = np.flatnonzero(usable)
        codes = np.zeros(len(slots), np.int64)
        for part in self.parts:
            if len(part.values) * (int(codes.max(initial=0)) + 1) >= _RADIX_LIMIT:
                codes = np.unique(codes, return_inverse=True)[1]
            codes = codes * len(part.values) + part.codes[slots]
        _, first, shape = np.unique(codes, return_index=True, return_inverse=True)
        values = [tuple(int(part.codes[at]) for part in self.parts) for at in slots[first].tolist()]
        found = np.zeros(len(self.codes), np.int64)
        found[slots] = shape + 1
        self.begin(list(map(key_of, values)), values, found)

    def facts(self, code: int) -> Facts:
        """What the devices of a code have in common."""
        for path, part, at in zip(self.paths, self.parts, self.values[code] or (), strict=False):
            if part.values[at] is not None:
                yield path, part.values[at]


class Properties:
    """What is known of the device in each slot, by path."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._columns: dict[Path, Column] = {LAYOUT: Column(slots, may_lack=False)}
        self._joints: dict[tuple[Path, ...], Joint] = {}
        self._verdicts: dict[tuple[Path, ...], Verdicts] = {}

    def verdicts(self) -> list[Verdicts]:
        """The tables of all columns on which there is a condition."""
        return list(self._verdicts.values())

    def put(self, slot: int, view: DeviceView) -> None:
        """Let ``slot`` have the properties of a device."""
        before = self._layout(slot)
        for path, value in facts_of(view):
            column = self._columns.get(path)
            if column is None:
                column = self._added(path)
            column.put(slot, value)
        if before is not None and before != self._layout(slot):
            kept = dict.fromkeys(named(self._layout(slot)))
            for path in named(before):
                if path not in kept:
                    self._clear(path, slot)
        for joint in self._joints.values():
            joint.refresh(slot)

    def clear(self, slot: int) -> None:
        """Let ``slot`` have no properties."""
        for path, column in list(self._columns.items()):
            if column.codes[slot]:
                self._clear(path, slot)
        for joint in self._joints.values():
            joint.clear(slot)

    def grow(self, slots: int) -> None:
        """Make room for ``slots`` slots."""
        self._slots = slots
        for column in (*self._columns.values(), *self._joints.values()):
            column.grow(slots)

    def verdicts_on(self, paths: tuple[Path, ...], usable: Mask) -> Verdicts:
        """The table for conditions that read ``paths``, made where there is none yet."""
        key = tuple(sorted(paths))
        found = self._verdicts.get(key)
        if found is None:
            if len(key) == 1 and EVERY not in key[0]:
                found = self._on_column(key[0])
            else:
                found = self._on_joint(key, usable)
            self._verdicts[key] = found
        return found

    def drop(self, verdicts: Verdicts) -> None:
        """Forget a table without conditions, and the combinations only it needed."""
        key = next(key for key, one in self._verdicts.items() if one is verdicts)
        verdicts.column.on_new = None
        del self._verdicts[key]
        self._joints.pop(key, None)

    def _layout(self, slot: int) -> Value:
        column = self._columns[LAYOUT]
        return column.values[column.codes[slot]]

    def _added(self, path: Path) -> Column:
        column = self._columns[path] = Column(self._slots, may_lack=path.field in MAPS)
        for joint in self._joints.values():
            if joint.reads(path) and path not in joint.paths:
                joint.extend(path, column)
        return column

    def _clear(self, path: Path, slot: int) -> None:
        column = self._columns[path]
        column.clear(slot)
        in_use = column.on_new is not None or path == LAYOUT
        if column.is_empty and not in_use and not self._joined(column):
            del self._columns[path]

    def _joined(self, column: Column) -> bool:
        return any(part is column for joint in self._joints.values() for part in joint.parts)

    def _on_column(self, path: Path) -> Verdicts:
        column = self._columns.get(path) or self._added(path)

        def facts(code: int) -> Facts:
            if column.values[code] is not None:
                yield path, column.values[code]

        return Verdicts(column, facts)

    def _on_joint(self, wanted: tuple[Path, ...], usable: Mask) -> Verdicts:
        for path in wanted:
            if EVERY not in path and path not in self._columns:
                self._added(path)
        joint = self._joints[wanted] = Joint(self._slots, wanted)
        for path, column in self._columns.items():
            if joint.reads(path):
                joint.paths.append(path)
                joint.parts.append(column)
        joint.fill(usable)
        return Verdicts(joint, joint.facts)
