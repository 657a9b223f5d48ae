"""Dead letters: the subject and headers of messages that could not be handled."""

from dray.messages.base import Delivered, Outgoing

_PREFIX = "dray.dead."
_DROPPED = ("Nats-Msg-Id", "Nats-TTL")


def dead_letter(message: Delivered, reason: str) -> Outgoing:
    """The message under ``dray.dead.…`` with the reason and its origin."""
    headers = {
        name: value
        for name, value in message.headers.items()
        if name not in _DROPPED and not name.startswith("Nats-Expected")
    }
    headers |= {
        "dray-dead-reason": " ".join(reason.split()),
        "dray-dead-stream": message.stream,
        "dray-dead-sequence": str(message.sequence),
        "Nats-Msg-Id": f"dead.{message.stream}.{message.sequence}",
    }
    return Outgoing(_PREFIX + message.subject.removeprefix("dray."), message.payload, headers)


def notice(about: str, reason: str, *, identity: str) -> Outgoing:
    """A notice that a service can't do something other than handle a message. ``about`` is the end
    of its subject. A repeated notice has the same ``identity``."""
    headers = {"dray-dead-reason": " ".join(reason.split()), "Nats-Msg-Id": f"dead.{identity}"}
    return Outgoing(_PREFIX + about, b"{}", headers)
