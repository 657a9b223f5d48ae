"""Errors of an allocation attempt. That claims do not fit on a node is not an error."""

from dray.api.errors import PermanentError


class AllocationError(PermanentError):
    """kube-scheduler ends the scheduling attempt with an error and does not try other nodes."""


class NodeAllocationError(AllocationError):
    """An error on one node; the claims may fit on another one."""


class SearchLimitError(AllocationError):
    """The search tried as many devices as its budget allows, without a result.

    kube-scheduler has no such limit; it stops searching a node after ten seconds.
    """
