"""What a conversion has to say."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Notes:
    """Collected while one object is converted."""

    changes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def change(self, text: str) -> None:
        """Something was changed: what, and why."""
        self.changes.append(text)

    def warn(self, text: str) -> None:
        """Nothing was changed, but the reader should know."""
        self.warnings.append(text)
