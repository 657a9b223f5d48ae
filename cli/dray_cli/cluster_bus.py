"""The bus of the cluster that a verb talks to.

Its address comes from the flag --nats, from the local stack whose kubeconfig is used, or from the
Secret ``dray-operator`` of the installation in the cluster. If the installation's bus is a Service
of the cluster, it is reached through the API server: users need only a kubeconfig.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dray.bus.ports import Bus, BusUnavailableError
from dray.bus.topology import READER
from dray.kube.kubeconfig import server_access
from dray.kube.ports import (
    PODS,
    Kube,
    KubeUnavailableError,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
)
from dray_cli.operator_secret import (
    AUTHORITIES,
    NAMESPACE_VARIABLE,
    OPERATOR,
    URL,
    installed_namespace,
    password_key,
    read_secret,
)
from dray_cli.port_forward import PortForward, PortForwardError
from dray_cli.target import connect_kube, kubeconfig_of, stack_of

SERVICES: Final = Resource("", "v1", "services", "Service")
_SERVICE: Final = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc(\.[a-z0-9.-]+)?")
_DEFAULT_PORT: Final = 4222


class NoBusAddressError(BusUnavailableError):
    """Nothing says where the bus is."""


@dataclass(frozen=True, slots=True)
class BusAddress:
    """The address of a bus, and the user that connects to it."""

    url: str
    user: str
    password: str
    authorities: str
    """Authorities of the server's certificate, in PEM; empty: the system's."""
    where: str
    """The bus's name in messages for people."""

    @property
    def service(self) -> tuple[str, str, int] | None:
        """Namespace, name and port of the cluster's Service in the URL; None if it has none."""
        parts = urlsplit(self.url.partition(",")[0])
        if (found := _SERVICE.fullmatch(parts.hostname or "")) is None:
            return None
        return found[2], found[1], parts.port or _DEFAULT_PORT

    def through(self, port: int) -> str:
        """The URL of the same bus at a port of this machine."""
        return f"{urlsplit(self.url).scheme}://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def open_bus(
    kubeconfig: str | None, nats: str | None, *, role: str = READER
) -> AsyncIterator[Bus]:
    """The bus, connected as a user of ``role``; the other arguments are the flags' values.

    Raises:
        NoBusAddressError: nothing says where the bus is; the error says what was looked for.
        BusUnavailableError: the bus can't be reached, or refuses the user.
    """
    # Slow to import, and few verbs need the bus.
    from dray.bus.jetstream import connect
    from dray.runtime import logs

    # Standard output is for the verb's answer; the connection's messages go to standard error.
    logs.configure("cli", "dray", level="error", format="console")
    async with contextlib.AsyncExitStack() as undo:
        address = _known_address(kubeconfig, nats, role)
        if address is None:
            address = await _installed(kubeconfig, role, undo)
        bus = await connect(
            address.url,
            name="dray-cli",
            role=role,
            user=address.user,
            password=address.password,
            ca_file=undo.enter_context(_as_file(address.authorities)),
        )
        undo.push_async_callback(bus.close)
        if not bus.connected:
            raise BusUnavailableError(
                f"{address.where} can't be reached, or refuses the user {address.user!r}: "
                f"{bus.problem}"
            )
        yield bus


def _known_address(kubeconfig: str | None, nats: str | None, role: str) -> BusAddress | None:
    """The address in the flag or of a local stack with dray's services; None: ask the cluster."""
    if nats:
        user, password, ca_file = (
            os.environ.get(f"DRAY_NATS__{name}", "") for name in ("USER", "PASSWORD", "CA_FILE")
        )
        authorities = Path(ca_file).read_text() if ca_file else ""
        return BusAddress(nats, user, password, authorities, f"NATS at {nats}")
    stack = stack_of(kubeconfig_of(kubeconfig))
    if stack is None or not stack.nats_url:
        return None
    where = f"NATS of the stack {stack.name!r}"
    return BusAddress(stack.nats_url, role, stack.nats_passwords[role], "", where)


async def _installed(
    kubeconfig: str | None, role: str, undo: contextlib.AsyncExitStack
) -> BusAddress:
    """The address of the installation's bus; closing ``undo`` ends the port-forward to it."""
    kube = await connect_kube(kubeconfig)
    try:
        address = await installed_address(kube, role)
        if (service := address.service) is None:
            return address
        pod, port = await ready_pod(kube, *service)
        access = await server_access(kubeconfig_of(kubeconfig))
        forward = PortForward(access, service[0], pod, port)
        await undo.enter_async_context(forward)
        return replace(address, url=address.through(forward.port))
    except (RefusedError, NotFoundError, KubeUnavailableError, PortForwardError) as error:
        raise BusUnavailableError(f"the bus of the installation: {error}") from error
    finally:
        await kube.close()


async def installed_address(kube: Kube, role: str) -> BusAddress:
    """The address of the bus, from the Secret of the installation.

    Raises:
        NoBusAddressError: there is no such Secret, or this user may not read it.
    """
    namespace = await installed_namespace(kube)
    try:
        data = await read_secret(kube, namespace, OPERATOR)
    except RefusedError as error:
        raise NoBusAddressError(
            f"this user may not read the Secret {OPERATOR} in {namespace}, by which the bus is "
            f"found ({error}); ask for the role of operators, or give --nats"
        ) from error
    if not data:
        raise NoBusAddressError(
            f"there is no Secret {OPERATOR} in {namespace}: is dray installed in this cluster, and "
            f"in which namespace (${NAMESPACE_VARIABLE})? Or give --nats"
        )
    where = f"NATS of the installation in {namespace}"
    return BusAddress(data[URL], role, data[password_key(role)], data.get(AUTHORITIES, ""), where)


async def ready_pod(kube: Kube, namespace: str, name: str, port: int) -> tuple[str, int]:
    """The first ready pod of a Service, and its port. Raises BusUnavailableError if none is."""
    spec = (await kube.get(SERVICES, name, namespace))["spec"]
    selector = ",".join(f"{key}={value}" for key, value in sorted(spec["selector"].items()))
    pods = (await kube.list(PODS, namespace, label_selector=selector)).objects
    ready = sorted((pod for pod in pods if _is_ready(pod)), key=lambda pod: pod["metadata"]["name"])
    if not ready:
        raise BusUnavailableError(
            f"none of the {len(pods)} pods of Service {namespace}/{name} is ready; see "
            f"`kubectl get pods -n {namespace} -l {selector}`"
        )
    targets = {one["port"]: one.get("targetPort", port) for one in spec["ports"]}
    target = targets.get(port, port)
    return ready[0]["metadata"]["name"], _pod_port(ready[0], target)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _pod_port(pod: Object, target: int | str) -> int:
    """The number of a pod's port; ``target`` is that number or the port's name in a container."""
    if isinstance(target, int):
        return target
    ports = (port for one in pod["spec"]["containers"] for port in one.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == target), 0)


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[Path | None]:
    """A file with that content; None for no content."""
    if not text:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", suffix=".crt") as file:
        file.write(text)
        file.flush()
        yield Path(file.name)
