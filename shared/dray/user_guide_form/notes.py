"""Changes and warnings of a conversion."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class ConversionNotes:
    """Collected while one object is converted."""

    changes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def change(self, text: str) -> None:
        """Note a change and its reason."""
        self.changes.append(text)

    @property
    def is_user_guide_form(self) -> bool:
        """Whether something had to change for Kubernetes to accept the object.

        What is valid already stays byte for byte, also where it means something other than its
        author may think: that is worth a warning, and the author's to change.
        """
        return bool(self.changes)

    def warn(self, text: str) -> None:
        """Note a warning without a change."""
        self.warnings.append(text)
