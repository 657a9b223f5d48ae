"""Makes a nats-server read its configuration and certificates again, without a restart."""

import json
import ssl
from pathlib import Path
from typing import Any, Final

import nats.errors

from dray.bus.connection import BusCredentials
from dray.bus.ports import BusUnavailableError
from dray.bus.session import SessionClient

_TIMEOUT_S: Final = 10


async def reload_if_outdated(
    url: str, *, user: str, password: str, ca_file: Path, certificate: bytes
) -> bool:
    """Reload the server if it serves another certificate than ``certificate`` (PEM).

    Returns whether it was reloaded.

    ``user`` is a user of the system account.

    Raises:
        BusUnavailableError: the server can't be reached, or refuses.
    """
    client = SessionClient()

    async def ignore(_: Exception) -> None: ...

    try:
        credentials = BusCredentials(user, password, ca_file=ca_file).options()
        await client.connect(
            url,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=_TIMEOUT_S,
            error_cb=ignore,
            **credentials,
        )
        if _served(client) == certificate:
            return False
        server = client._server_info["server_id"]
        answer = await client.request(f"$SYS.REQ.SERVER.{server}.RELOAD", b"", timeout=_TIMEOUT_S)
        if "error" in (reply := json.loads(answer.data)):
            raise BusUnavailableError(f"the server at {url} refused to reload: {reply['error']}")
        return True
    except (nats.errors.Error, OSError) as error:
        raise BusUnavailableError(f"cannot reload the server at {url}: {error!r}") from error
    finally:
        await client.discard()


def _served(client: SessionClient) -> bytes:
    """The server's certificate as PEM; empty without TLS."""
    transport: Any = client._transport
    tls = transport._io_writer.get_extra_info("ssl_object")
    if tls is None:
        return b""
    return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)).encode()
