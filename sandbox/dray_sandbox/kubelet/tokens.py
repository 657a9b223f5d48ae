"""The projected service-account token of a node's agent, bound to the Node."""

import asyncio
import os
from pathlib import Path

import structlog

from dray.api.errors import DrayError
from dray.api.names import DRAY_NAMESPACE
from dray.kube.ports import NODES, Kube, Object, Resource
from dray.runtime.backoff import Backoff

ACCOUNT = "dray-node-agent"
_AUDIENCE = "dray-nats"
_LIFETIME_S = 3600
_RENEW_AFTER = 0.8
"""Share of the lifetime after which a kubelet renews a token."""


class TokenFile:
    """Writes and renews the file with one node's token."""

    def __init__(self, kube: Kube, node: str, path: Path) -> None:
        self._kube = kube
        self._node = node
        self._path = path

    async def run(self) -> None:
        """Loop: write the token, and renew it before it expires."""
        backoff = Backoff()
        while True:
            try:
                token = await self._request()
                await asyncio.to_thread(self._write, token)
            except (DrayError, OSError) as error:
                structlog.get_logger().info("no token yet", node=self._node, why=str(error))
                await backoff.pause()
            else:
                backoff.reset()
                await asyncio.sleep(_LIFETIME_S * _RENEW_AFTER)

    async def _request(self) -> str:
        node = await self._kube.get(NODES, self._node)
        # A pod's token is bound to the pod and so to its node; here no pod runs the agent.
        bound = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node["metadata"]["uid"],
        }
        spec = {"audiences": [_AUDIENCE], "expirationSeconds": _LIFETIME_S, "boundObjectRef": bound}
        request: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": spec,
        }
        tokens = Resource("", "v1", f"serviceaccounts/{ACCOUNT}/token", "TokenRequest")
        answer = await self._kube.create(tokens, request, DRAY_NAMESPACE)
        return str(answer["status"]["token"])

    def _write(self, token: str) -> None:
        """Replace the file atomically."""
        new = self._path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(token)
        os.replace(new, self._path)
