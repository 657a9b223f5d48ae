"""What the kubelet's pod resources API lists of a container. Pure."""

import msgspec


class ListedContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that has ids or claims of dray."""

    namespace: str
    pod: str
    container: str
    ids: dict[str, tuple[str, ...]] = {}
    """The ids that device plugins gave it, by resource."""
    claims: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of its claims that have devices of dray."""
