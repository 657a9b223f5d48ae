"""Questions with an answer, over plain request and reply."""

from typing import ClassVar, Literal

import msgspec

from dray.domain.pods import Policy, Pool
from dray.messages.facts import TemplateObserved

LOOKUP_SUBJECT = "dray.rpc.lookup"


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """The webhook's one question before a negative answer; answered from a live GET."""

    SUBJECT: ClassVar[str] = LOOKUP_SUBJECT

    kind: Literal["pool", "policy", "template"]
    name: str
    namespace: str = ""


class LookupReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the API server holds; all absent: no such object."""

    pool: Pool | None = None
    policy: Policy | None = None
    template: TemplateObserved | None = None
    error: str = ""
    """Why the API server could not be asked."""
