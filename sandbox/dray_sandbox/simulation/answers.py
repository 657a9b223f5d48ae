"""What a server answers to a request that it does not serve, as dray's own adapters tell it.

An answer becomes the error that ``dray.kube.api_transport`` makes of the same response, so the
simulation can't be kinder than the real adapter.
"""

from dataclasses import dataclass, replace
from typing import Final

from dray.api.errors import DrayError
from dray.bus.ports import BusUnavailableError, MessageTooLargeError
from dray.kube import api_transport
from dray.kube.ports import KubeUnavailableError
from dray_sandbox.simulation.unreadable import NUMBER

WORDS: Final = "odd.example.com"
"""Whose name is in the message of every refusal: by this a report is known that passes the server's
words on."""
_ETCD_S: Final = 7.0
"""After so long kube-apiserver answers 500 where etcd does not answer."""
_BUS_S: Final = 5.0
"""About as long as dray waits for an answer of NATS."""
_MOST_BYTES: Final = 2**20
_LARGE_BYTES: Final = 1_196_908
"""What a bus takes, and how large a message is that is too large for it."""
_REASONS: Final = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class FaultyAnswer:
    """One way in which a server does not serve a request."""

    name: str
    status: int = 0
    """HTTP status; 0: no answer comes, and the client gives up by itself."""
    retry_after_s: float = 0.0
    after_s: float = 0.0
    """How long the answer takes."""
    is_carried_out: bool = False
    """Whether the request is carried out although its caller hears otherwise."""
    shape: int = 0
    """Of what is read, which unreadable shape of its kind it has."""


KUBE_ANSWERS: Final = (
    FaultyAnswer("403", 403),
    FaultyAnswer("404", 404),
    FaultyAnswer("409", 409),
    FaultyAnswer("422", 422),
    FaultyAnswer("429", 429),
    FaultyAnswer("429 with Retry-After", 429, retry_after_s=4.0),
    FaultyAnswer("500", 500),
    FaultyAnswer("503", 503),
    FaultyAnswer("time-out", 500, after_s=_ETCD_S),
    FaultyAnswer("time-out, carried out", 500, after_s=_ETCD_S, is_carried_out=True),
    FaultyAnswer("none", after_s=api_transport.TIMEOUT_S),
    FaultyAnswer("none, carried out", after_s=api_transport.TIMEOUT_S, is_carried_out=True),
)
TOO_LARGE: Final = FaultyAnswer("too large", 413)
BUS_ANSWERS: Final = (
    FaultyAnswer("none", after_s=_BUS_S),
    FaultyAnswer("none, carried out", after_s=_BUS_S, is_carried_out=True),
)
READ_ANSWERS: Final = tuple(FaultyAnswer(f"shape {shape}", shape=shape) for shape in range(NUMBER))


def kube_error(answer: FaultyAnswer, method: str, what: str) -> DrayError:
    """What the adapter of Kubernetes raises for the answer."""
    about = f"{method} {what}"
    if not answer.status:
        return KubeUnavailableError(f"{about}: no answer within {answer.after_s:g} s, {WORDS}")
    reason = _REASONS[answer.status]
    response = api_transport.ApiResponse(
        status=answer.status,
        reason=reason,
        message=f'{reason}: admission webhook "{WORDS}" denied the request',
        causes="",
        retry_after_s=answer.retry_after_s,
        is_about_object=True,
    )
    return api_transport.error_of(response, about)


def bus_error(answer: FaultyAnswer, method: str, what: str) -> DrayError:
    """What the adapter of NATS raises for the answer."""
    if answer.status:
        return MessageTooLargeError(what, _LARGE_BYTES, _MOST_BYTES)
    return BusUnavailableError(f"no answer from NATS for {what}, {WORDS}")


def within(answer: FaultyAnswer, timeout_s: float | None) -> FaultyAnswer:
    """The answer to a request that the server gives up after ``timeout_s``."""
    if timeout_s is None or timeout_s >= answer.after_s:
        return answer
    return replace(answer, status=answer.status or 503, after_s=timeout_s)
