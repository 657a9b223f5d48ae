"""The bounds that are searched."""

from dray_sandbox.explorer.bound import Bound, PodKind

TINY = Bound("tiny", (PodKind("P", (312,)), PodKind("Q", (312,))), ("n0",))
