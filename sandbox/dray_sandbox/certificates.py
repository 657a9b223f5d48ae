"""The certificates, keys and other secrets of one local stack, as files."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.runtime.certificates import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    ClientAuthority,
    issue,
    signing_key,
)
from dray_sandbox.secret_files import write_secret

_LIFETIME = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """A server's certificate, its key, and the authority that signed it (all PEM)."""

    authority: Path
    certificate: Path
    key: Path


def make_server_files(directory: Path, names: Sequence[str]) -> ServerFiles:
    """A new authority and one certificate for ``names`` (host names or IP addresses)."""
    directory.mkdir(parents=True, exist_ok=True)
    files = ServerFiles(directory / CA_FILE, directory / CERTIFICATE_FILE, directory / KEY_FILE)
    issued = issue("dray local stack", names[0], names, _LIFETIME)
    files.authority.write_bytes(issued.authority)
    files.certificate.write_bytes(issued.certificate)
    write_secret(files.key, issued.key)
    return files


def make_client_authority() -> ClientAuthority:
    """A new authority of users that have certificates instead of tokens."""
    return ClientAuthority("dray local stack clients", _LIFETIME)


def make_signing_key(path: Path) -> Path:
    """A new RSA key that signs service-account tokens."""
    write_secret(path, signing_key())
    return path
