"""A Kubernetes API server small enough to read, close enough to trust with dray's tests.

Lives here: what of the Kubernetes API dray relies on, as one process or inside a test. It is
never the proof of anything: the contract suite in `tests/contract/kubernetes` runs against this
server and a real kube-apiserver, and where they differ this one is wrong. May not be imported by
services.
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
