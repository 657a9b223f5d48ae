"""Streams on few servers, and on older ones."""

from typing import Any

import pytest

from dray.bus import jetstream_streams
from dray.bus.jetstream_api import JetStreamRefusedError, TooFewServersError
from dray.bus.jetstream_streams import REPLICAS, JetStreamStreams
from dray.bus.ports import StreamMissingError
from dray.bus.topology import log_spec


class Servers:
    """What JetStream answers, with so many servers there."""

    def __init__(self) -> None:
        self.there = 1
        self.config: dict[str, Any] = {}
        self.fixed: tuple[str, ...] = ()
        """What these servers can't change."""

    async def ask(self, session: object, subject: str, config: dict[str, Any]) -> None:
        if config["num_replicas"] > self.there:
            raise TooFewServersError(subject, 10005, "no suitable peers for placement")
        changed = [key for key in self.fixed if self.config and self.config[key] != config[key]]
        if changed:
            raise JetStreamRefusedError(subject, 10052, f"can not change {changed}")
        self.config = config

    async def info(self, session: object, name: str) -> dict[str, Any]:
        if not self.config:
            raise StreamMissingError(name)
        return {"config": self.config}


async def test_a_stream_that_was_made_with_one_replica_gets_more_when_there_are_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers, session = Servers(), object()
    monkeypatch.setattr(jetstream_streams, "ask", servers.ask)
    monkeypatch.setattr(jetstream_streams, "stream_info", servers.info)
    spec = log_spec("pool", 1)

    assert await JetStreamStreams().ensure(session, spec)  # type: ignore[arg-type]
    assert servers.config["num_replicas"] == 1
    servers.there = REPLICAS
    # By whom it is raised is another process, later.
    await JetStreamStreams().raise_replicas(session, spec.name)  # type: ignore[arg-type]
    assert servers.config["num_replicas"] == REPLICAS

    # It is raised once: what an administrator sets then stays.
    servers.config["num_replicas"] = 1
    await JetStreamStreams().raise_replicas(session, spec.name)  # type: ignore[arg-type]
    assert servers.config["num_replicas"] == 1


@pytest.mark.parametrize("fixed", ["max_consumers", "storage"])
async def test_a_server_that_can_not_change_the_limit_of_consumers_changes_the_rest(
    monkeypatch: pytest.MonkeyPatch, fixed: str
) -> None:
    servers, session = Servers(), object()
    monkeypatch.setattr(jetstream_streams, "ask", servers.ask)
    monkeypatch.setattr(jetstream_streams, "stream_info", servers.info)
    spec, streams = log_spec("pool", 1), JetStreamStreams()
    await streams.ensure(session, spec)  # type: ignore[arg-type]
    servers.config |= {"max_consumers": -1, "max_age": 1, "storage": "memory"}
    servers.fixed = (fixed,)
    if fixed == "storage":
        with pytest.raises(JetStreamRefusedError, match="storage"):
            await streams.ensure(session, spec)  # type: ignore[arg-type]
        return
    await streams.ensure(session, spec)  # type: ignore[arg-type]
    assert servers.config["max_consumers"] == -1
    assert (servers.config["max_age"], servers.config["storage"]) == (0, "file")
    await streams.ensure(session, spec)  # type: ignore[arg-type]
