"""Equality that distinguishes types, as in Kubernetes. In Python, true, 1 and 1.0 are equal."""

import msgspec


def strictly_equal(one: object, other: object) -> bool:
    """Whether two values, of the domain or JSON, are equal and encode to the same JSON."""
    return one == other and _words(one) == _words(other)


def _words(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
