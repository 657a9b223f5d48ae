"""Kubernetes' authorizer library: declared for selectors, though nothing there has its types."""

from collections.abc import Callable
from typing import Final

from dray.cel.declarations.kubernetes import AUTHORIZATION
from dray.cel.values import Value, no_overload


def _without_form(name: str) -> Callable[..., Value]:
    def call(*values: Value) -> Value:
        raise no_overload(name, *values)

    return call


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    name: _without_form(name) for name in AUTHORIZATION
}
