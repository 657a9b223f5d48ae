"""One suite, two servers: the sandbox's API and a real kube-apiserver."""

import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import aiohttp
import pytest
from tests.contract.kubernetes.client import Api, Refused


@pytest.fixture
async def api(target: Any) -> AsyncIterator[Api]:
    context = ssl.create_default_context(cafile=str(target.ca_file))
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        namespace = f"t{uuid.uuid4().hex[:8]}"
        client = Api(session, target, namespace)
        await client.create("namespaces", {"metadata": {"name": namespace}})
        yield client
        for path in reversed(client.cleanup):
            with contextlib.suppress(Refused):
                await client.call("DELETE", path)


@pytest.fixture
def refused() -> type[Refused]:
    """The exception for answers of 400 and above."""
    return Refused


@pytest.fixture
def invalid(api: Api) -> Callable[..., AbstractContextManager[None]]:
    """Asserts that what is done within is refused as invalid, for these causes and no others.

    A table of other minors says what theirs are of one case, where they differ.
    """

    @contextlib.contextmanager
    def expecting(
        causes: list[str],
        in_other_minors: Mapping[int, Mapping[str, list[str]]] | None = None,
        what: str = "",
    ) -> Iterator[None]:
        expected = (in_other_minors or {}).get(api.minor, {}).get(what, causes)
        with pytest.raises(Refused) as caught:
            yield
        assert (caught.value.code, caught.value.reason) == (422, "Invalid")
        assert caught.value.starts(expected, api.minor) == expected

    return expecting
