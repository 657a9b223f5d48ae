"""The masks of all live selectors, in blocks of rows: one device's change is one column."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dray.cel.columnar.columns import Mask

_ROWS: Final = 64
"""Rows per block: a new selector never moves the masks of others."""


class Board:
    """Two masks per row, match and error, of a bool per slot."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._match: list[Mask] = []
        self._errors: list[Mask] = []
        self._failing: set[int] = set()

    def set_row(self, row: int, match: Mask, errors: Mask | None) -> None:
        """Set the masks of a selector, from slot 0 on; no ``errors`` means none."""
        while row >= _ROWS * len(self._match):
            self._match.append(np.zeros((_ROWS, self._slots), np.bool_))
            self._errors.append(np.zeros((_ROWS, self._slots), np.bool_))
        block, at = divmod(row, _ROWS)
        self._match[block][at, : len(match)] = match
        if errors is not None:
            self._errors[block][at, : len(errors)] = errors
            self._failing.add(row)
        elif row in self._failing:  # pages never written take no memory
            self._errors[block][at] = False
            self._failing.discard(row)

    def masks(self, row: int, slots: int) -> tuple[Mask, Mask]:
        """Match and error of a selector for the first ``slots`` slots: views, not copies."""
        block, at = divmod(row, _ROWS)
        return self._match[block][at, :slots], self._errors[block][at, :slots]

    def set_slots(
        self, slots: NDArray[np.intp], match: NDArray[np.bool_], errors: NDArray[np.bool_]
    ) -> None:
        """Set some slots of all rows; ``match`` and ``errors`` are row by slot."""
        for start in range(0, len(match), _ROWS):
            rows = min(_ROWS, len(match) - start)
            self._match[start // _ROWS][:rows, slots] = match[start : start + rows]
            self._errors[start // _ROWS][:rows, slots] = errors[start : start + rows]
        if errors.any():
            self._failing.update(np.flatnonzero(errors.any(axis=1)).tolist())

    def grow(self, slots: int) -> None:
        """Make room for ``slots`` slots. Views given out before show the past from now on."""
        self._slots = slots
        for masks in (self._match, self._errors):
            for at, block in enumerate(masks):
                wider = np.zeros((_ROWS, slots), np.bool_)
                wider[:, : block.shape[1]] = block
                masks[at] = wider
