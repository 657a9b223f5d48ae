"""What the kubelet's pod resources API lists of a container. Pure."""

import msgspec


class ListedContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that has something of dray's."""

    namespace: str
    pod: str
    container: str
    ids: dict[str, tuple[str, ...]] = {}
    """What device plugins gave it, by resource."""
    devices: frozenset[str] = frozenset()
    """The devices of its claims, also of requests that other containers name."""
