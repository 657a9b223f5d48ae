"""Faulty answers of servers, and objects in unknown forms.

An answer is converted by ``dray.kube.api_transport``, as in the real adapter. Unreadable objects
look as a later Kubernetes or another client may write them. Only the processes that a refusal names
read them in that form; the store keeps the originals.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dray.api.errors import DrayError
from dray.bus.ports import BusUnavailableError, MessageTooLargeError
from dray.kube import api_transport
from dray.kube.ports import KubeUnavailableError, Object

Form = Callable[[Object], None]
"""Changes an object so that dray can't read it."""


def _part(*path: str, value: Any) -> Form:
    """Replace the value at a path, if there is one."""

    def change(obj: Object) -> None:
        at: Any = obj
        for name in path[:-1]:
            at = at.get(name)
            if not isinstance(at, dict):
                return
        if path[-1] in at:
            at[path[-1]] = value

    return change


def _all(*forms: Form) -> Form:
    def change(obj: Object) -> None:
        for form in forms:
            form(obj)

    return change


_RESULTS: Final = ("status", "allocation", "devices", "results")
_SHAPES: Final[Mapping[str, tuple[Form, ...]]] = {
    "resourceclaims": (
        _part("spec", "devices", value="a later form"),
        _part("spec", "devices", "requests", value=[{"exactly": 5}]),
        _part(*_RESULTS, value=[{"later": True}]),
        _all(_part("spec", "devices", value=5), _part("status", "allocation", value="all")),
    ),
    "pods": (
        _part("spec", "resourceClaims", value=[{"later": True}]),
        _part("spec", "containers", value="a later form"),
        _part("metadata", "annotations", value=["a later form"]),
    ),
    "resourceslices": (
        _part("spec", "devices", value=[{"later": True}]),
        _part("spec", "pool", value="a later form"),
    ),
    "nodes": (
        _part("status", "allocatable", value={"cpu": "several"}),
        _part("status", "allocatable", value="a later form"),
        _part("spec", value=5),
    ),
    "gpupools": (
        _part("spec", value={"capacityConfig": 5}),
        _part("spec", value=["a later form"]),
    ),
}
NUMBER: Final = max(map(len, _SHAPES.values()))
"""The largest number of shapes of a kind."""


def unreadable(plural: str, obj: Object, shape: int, copy: Callable[[Object], Object]) -> Object:
    """A copy of the object in one of its kind's unreadable shapes."""
    made = copy(obj)
    shapes = _SHAPES[plural]
    shapes[shape % len(shapes)](made)
    return made


MARKER: Final = "odd.example.com"
"""A name in the message of every refusal; checks use it to find the message in reports."""
_ETCD_S: Final = 7.0
"""After this time kube-apiserver answers 500 if etcd does not answer."""
_BUS_S: Final = 5.0
"""About dray's timeout of requests to NATS."""
_MOST_BYTES: Final = 2**20
_LARGE_BYTES: Final = 1_196_908
"""The bus' limit, and the size of a message that exceeds it."""
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
    """A faulty answer to a request."""

    name: str
    status: int = 0
    """HTTP status; 0: no answer, and the client times out."""
    retry_after_s: float = 0.0
    after_s: float = 0.0
    """Delay of the answer."""
    is_carried_out: bool = False
    """Whether the request is carried out although the answer is an error."""
    shape: int = 0
    """For reads: the index of the unreadable shape."""


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
    """The Kubernetes adapter's error for the answer."""
    about = f"{method} {what}"
    if not answer.status:
        return KubeUnavailableError(f"{about}: no answer within {answer.after_s:g} s, {MARKER}")
    reason = _REASONS[answer.status]
    response = api_transport.ApiResponse(
        status=answer.status,
        reason=reason,
        message=f'{reason}: admission webhook "{MARKER}" denied the request',
        causes="",
        retry_after_s=answer.retry_after_s,
        is_about_object=True,
    )
    return api_transport.error_of(response, about)


def bus_error(answer: FaultyAnswer, method: str, what: str) -> DrayError:
    """The NATS adapter's error for the answer."""
    if answer.status:
        return MessageTooLargeError(what, _LARGE_BYTES, _MOST_BYTES)
    return BusUnavailableError(f"no answer from NATS for {what}, {MARKER}")


def within(answer: FaultyAnswer, timeout_s: float | None) -> FaultyAnswer:
    """The answer to a request with a server-side timeout."""
    if timeout_s is None or timeout_s >= answer.after_s:
        return answer
    return replace(answer, status=answer.status or 503, after_s=timeout_s)
