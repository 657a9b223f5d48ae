"""A small Kubernetes API server for dray's tests and local stacks.

It implements the parts of the Kubernetes API that dray relies on, as a process or inside a test. It
proves nothing by itself: the contract suite in `tests/contract/kubernetes` runs against this server
and a real kube-apiserver. If they differ, this one is wrong. Services must not import it.
"""

from .requests import Tokens
from .serve import ADMIN_TOKEN, RunningServer, serve
from .server import ApiServerSettings, create_app
from .watch import WatchSettings

__all__ = [
    "ADMIN_TOKEN",
    "ApiServerSettings",
    "RunningServer",
    "Tokens",
    "WatchSettings",
    "create_app",
    "serve",
]
