"""Why an allocation can't be decided at all, other than that it doesn't fit."""

from dray.api.errors import PermanentError


class AllocationError(PermanentError):
    """Kubernetes ends the attempt with an error here, and doesn't try other nodes."""


class NodeAllocationError(AllocationError):
    """The error is about one node only; on another one the claims may fit."""


class SearchLimitError(AllocationError):
    """The search was given up: finding the answer would take too long.

    Kubernetes has no such bound; its scheduler gives up a node after ten seconds.
    """
