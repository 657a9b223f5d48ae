"""Changes and warnings of a conversion."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ConversionNotes:
    """The notes of the conversion of one object."""

    changes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def change(self, text: str) -> None:
        """Note a change and its reason."""
        self.changes.append(text)

    @property
    def is_user_guide_form(self) -> bool:
        """Whether something had to change for Kubernetes to accept the object.

        An object that is already valid stays byte for byte, even if it means something else than
        its author may think. It gets a warning, and the author may change it.
        """
        return bool(self.changes)

    def warn(self, text: str) -> None:
        """Note a warning without a change."""
        self.warnings.append(text)
