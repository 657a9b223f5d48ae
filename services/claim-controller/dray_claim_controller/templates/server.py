"""Makes a derived template on the webhook's request, before the pod that needs it exists.

Every instance answers, leading or not: a template's name is the hash of its content, so two
instances make the same one. Kubernetes' ResourceClaim controller finds it when it sees the pod.
"""

import msgspec
import structlog

from dray.api.errors import DrayError
from dray.bus.ports import Request
from dray.kube.ports import TEMPLATES, AlreadyExistsError, Kube
from dray.messages.rpc import Derive, DeriveReply
from dray_claim_controller.informers import Informers
from dray_claim_controller.templates.decisions import Unusable, derived_from
from dray_claim_controller.tracing import deriving


class TemplateServer:
    """Handles ``dray.rpc.derive``."""

    def __init__(self, kube: Kube, informers: Informers) -> None:
        self._kube = kube
        self._informers = informers

    async def answer(self, request: Request) -> bytes:
        """The encoded DeriveReply to an encoded Derive."""
        try:
            asked = msgspec.json.decode(request.payload, type=Derive)
        except msgspec.MsgspecError as error:
            return _encoded(f"the request can't be read: {error}")
        try:
            return _encoded(await self._make(asked))
        except AlreadyExistsError:
            return _encoded("")
        except DrayError as error:
            return _encoded(str(error))

    async def _make(self, asked: Derive) -> str:
        """Why the template can't be made; empty if it exists."""
        name = f"{asked.namespace}/{asked.template}"
        if name in self._informers.cache.plain[TEMPLATES.plural]:
            return ""
        wanted = derived_from(asked.shape, asked.namespace, asked.template)
        if isinstance(wanted, Unusable):
            return wanted.message
        attributes = {"k8s.namespace.name": asked.namespace}
        with deriving(asked.traceparent, wanted.name, wanted.base, attributes):
            made = await self._kube.create(TEMPLATES, wanted.manifest(), wanted.namespace)
        structlog.get_logger().info("template derived", template=name, base=wanted.base)
        self._informers.apply_response(TEMPLATES, made)
        return ""


def _encoded(error: str) -> bytes:
    return msgspec.json.encode(DeriveReply(error=error))
