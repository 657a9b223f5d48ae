"""Reads an installation's Secrets, and writes what is missing or must be renewed."""

import base64
import datetime
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from dray.bus.ports import BusUnavailableError
from dray.bus.server_reload import reload_if_outdated
from dray.kube.ports import Kube, Object
from dray.runtime.certificates import CA_FILE, CERTIFICATE_FILE
from dray_cli.chart import credentials, tls
from dray_cli.operator_secret import OPERATOR, SECRETS, password_key, read_secret

NATS, NATS_TLS, WEBHOOK_TLS = "dray-nats", "dray-nats-tls", "dray-webhook-tls"
MADE = (NATS, NATS_TLS, WEBHOOK_TLS, OPERATOR, "dray-ca")
"""Secrets made by these jobs, or by cert-manager from the chart's Certificates."""
PART = {"app.kubernetes.io/part-of": "dray"}
"""Label of all of them."""
_LABELS = PART | {"app.kubernetes.io/managed-by": "dray-chart"}
"""Labels of the Secrets that these jobs make."""
_TLS_TYPE = "kubernetes.io/tls"


async def keep_credentials(kube: Kube, namespace: str) -> None:
    """Make those passwords and keys of NATS that are missing."""
    held = await read_secret(kube, namespace, NATS)
    await _write(kube, namespace, NATS, held, credentials.completed(held))


async def keep_certificate(
    kube: Kube, namespace: str, name: str, subject: str, names: Sequence[str]
) -> str:
    """Make or renew the certificate in the Secret if necessary; returns its authorities."""
    held = await read_secret(kube, namespace, name)
    now = datetime.datetime.now(datetime.UTC)
    wanted = tls.renewed(held, subject, names, now) or held
    await _write(kube, namespace, name, held, wanted, kind=_TLS_TYPE)
    return wanted[CA_FILE]


async def keep_operator(
    kube: Kube, namespace: str, passwords: str, authorities: str | None, url: str
) -> None:
    """Write the Secret from which the command line gets its credentials: the passwords in the
    Secret ``passwords``, and the authorities of NATS' certificate in the Secret ``authorities``."""
    source = await read_secret(kube, namespace, passwords)
    if lacking := credentials.lacking(source):
        click.echo(
            f"Secret {passwords}: has no {' and no '.join(lacking)}, which `dray doctor`, `trace` "
            "and `record` need: add them, or give people --nats"
        )
        return
    certificate = await read_secret(kube, namespace, authorities) if authorities else {}
    held = await read_secret(kube, namespace, OPERATOR)
    wanted = credentials.operators(source, url, certificate.get(CA_FILE, ""))
    await _write(kube, namespace, OPERATOR, held, wanted)


async def load_in_servers(kube: Kube, namespace: str, urls: Sequence[str]) -> None:
    """Make the NATS servers load the certificate in their Secret, if they serve another one.

    The issuer of the certificate does not matter. The kubelet updates the servers' volumes a minute
    or two after the Secret was written: a server without the new file loads it in the next run. A
    server that does not run loads it when it starts.
    """
    if not urls:
        return
    held, keys = (
        await read_secret(kube, namespace, NATS_TLS),
        await read_secret(kube, namespace, NATS),
    )
    if not held.get(CERTIFICATE_FILE):
        click.echo(f"Secret {NATS_TLS}: has no certificate yet")
        return
    with _file(held[CA_FILE]) as authorities:
        for url in urls:
            try:
                reloaded = await reload_if_outdated(
                    url,
                    user=credentials.SYSTEM,
                    password=keys[password_key(credentials.SYSTEM)],
                    ca_file=authorities,
                    certificate=held[CERTIFICATE_FILE].encode(),
                )
            except BusUnavailableError as error:
                click.echo(f"{url}: {error}")
            else:
                click.echo(f"{url}: {'reloads its certificate' if reloaded else 'nothing to do'}")


@contextmanager
def _file(text: str) -> Iterator[Path]:
    """A file with the text."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield Path(file.name)


async def _write(
    kube: Kube,
    namespace: str,
    name: str,
    held: Mapping[str, str],
    wanted: Mapping[str, str],
    *,
    kind: str = "Opaque",
) -> None:
    if held == wanted:
        click.echo(f"Secret {name}: nothing to do")
        return
    if not held:
        await kube.create(SECRETS, _secret(name, namespace, wanted, kind), namespace)
        click.echo(f"Secret {name}: created")
        return
    changes: dict[str, str | None] = {key: _encoded(text) for key, text in wanted.items()}
    changes |= {key: None for key in held if key not in wanted}
    await kube.patch(SECRETS, name, {"data": changes}, namespace)
    click.echo(f"Secret {name}: updated ({', '.join(sorted(_changed(held, wanted)))})")


def _changed(held: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    return {key for key in held.keys() | wanted.keys() if held.get(key) != wanted.get(key)}


def _secret(name: str, namespace: str, data: Mapping[str, str], kind: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "type": kind,
        "data": {key: _encoded(text) for key, text in data.items()},
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
