"""How reconcilers report events about pods. ``report.reporter`` writes and limits them."""

from collections.abc import Callable

from dray_claim_controller.cache.cached_objects import CachedPod

ReportEvent = Callable[[CachedPod, str, str], None]
"""Reports (pod, reason, message) as an event."""
