"""Which rows have the same tie: hardly ever any, but then their order must not be by chance."""


class TieRows:
    """The ties of rows. Equal ones are listed, so that a search can look closer."""

    def __init__(self) -> None:
        self.duplicates: dict[int, list[int]] = {}
        """Rows by tie, where several have the same one."""
        self._first: dict[int, int] = {}
        self._of: dict[int, int] = {}

    def set(self, row: int, value: int) -> None:
        """A row has this tie from now on."""
        if self._of.get(row) == value:
            return
        self.forget(row)
        self._of[row] = value
        if value in self._first:
            self.duplicates.setdefault(value, [self._first[value]]).append(row)
        else:
            self._first[value] = row

    def forget(self, row: int) -> None:
        """A row has no tie any more."""
        value = self._of.pop(row, -1)
        alike = self.duplicates.get(value)
        if alike is None:
            self._first.pop(value, None)
            return
        alike.remove(row)
        self._first[value] = alike[0]
        if len(alike) == 1:
            del self.duplicates[value]
