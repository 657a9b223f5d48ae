"""Equality that tells types apart, as Kubernetes does. To Python true, 1 and 1.0 are equal, in
attributes and in opaque parameters, too."""

import msgspec


def strictly_equal(one: object, other: object) -> bool:
    """Whether two values, be they of the domain or JSON, are equal and say so in equal words."""
    return one == other and _words(one) == _words(other)


def _words(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
