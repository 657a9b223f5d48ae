"""A folder's generated files: write them, or say how the folder differs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Output:
    """The files that one generator writes."""

    folder: str
    """Relative to the repository's root."""
    files: Callable[[], Mapping[str, str]]
    """The text of each file, by its path below the folder."""
    owned: str = ""
    """A glob: files in the folder that match it and are not generated are removed."""

    def differences(self, root: Path) -> list[str]:
        """The differences of the files below ``root`` from the generated ones, one line each."""
        folder, wanted = root / self.folder, self.files()
        found = {name: _text(folder / name) for name in wanted}
        return [
            *(f"{self.folder}/{name} is missing" for name in wanted if found[name] is None),
            *(f"{self.folder}/{name} is not generated any more" for name in self._stray(root)),
            *(
                f"{self.folder}/{name} is out of date"
                for name, text in wanted.items()
                if found[name] not in (None, text)
            ),
        ]

    def write(self, root: Path) -> None:
        """Write the files below ``root``, and remove owned files that are no longer generated."""
        folder = root / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in self._stray(root):
            (folder / name).unlink()
        for name, text in self.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")

    def _stray(self, root: Path) -> list[str]:
        if not self.owned:
            return []
        found = {path.name for path in (root / self.folder).glob(self.owned)}
        return sorted(found - self.files().keys())


def _text(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None
