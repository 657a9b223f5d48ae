"""The user and options of a request."""

from dataclasses import dataclass, field

from .status import Object


@dataclass
class Context:
    """The user and options of a request, which every operation needs."""

    user: Object
    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    """`Strict` refuses unknown fields, `Warn` drops them with a warning, `Ignore` silently."""
    warnings: list[str] = field(default_factory=list)

    @property
    def strict(self) -> bool:
        """Are unknown fields an error?"""
        return self.field_validation == "Strict"

    def options(self, kind: str) -> Object:
        """The options object for webhooks."""
        options: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            options["dryRun"] = ["All"]
        if self.field_manager:
            options["fieldManager"] = self.field_manager
        if kind != "DeleteOptions":
            options["fieldValidation"] = self.field_validation
        return options


def system(name: str) -> Context:
    """The context of one of the server's own loops."""
    user = {"username": f"system:{name}", "uid": "", "groups": ["system:authenticated"]}
    return Context(user, field_validation="Ignore")
