"""The webhook's serving certificates: files in a folder, which are created there if absent."""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import PermanentError
from dray.runtime.certificates import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    Issued,
    is_issued_by,
    issue,
    problem,
)

AUTHORITY = "dray webhook CA"
VALID_FOR = datetime.timedelta(days=3650)
RENEW_BEFORE = datetime.timedelta(days=30)


class CertificateError(PermanentError):
    """The certificates can't be read, created or used."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files; ``ca`` is what ``caBundle`` of a registration needs."""

    ca: Path
    certificate: Path
    key: Path

    def read(self) -> Issued:
        """The files' content now. Raises OSError."""
        return Issued(self.ca.read_bytes(), self.certificate.read_bytes(), self.key.read_bytes())


_LOCAL_NAMES = ("127.0.0.1", "localhost")
"""Additional names of certificates that are created here."""


def ensure_certificates(folder: Path, names: Sequence[str]) -> Certificates:
    """The certificates in ``folder``, created if absent.

    Those that were created here are replaced if they expire within RENEW_BEFORE or lack one of
    ``names`` (DNS names and IP addresses) or LOCAL_NAMES. Those of another issuer serve until they
    expire.

    Raises:
        CertificateError: the folder can't be used, or a certificate of another issuer is there
            and lacks one of ``names`` or has expired.
    """
    own_names = tuple(dict.fromkeys((*_LOCAL_NAMES, *names)))
    found = Certificates(folder / CA_FILE, folder / CERTIFICATE_FILE, folder / KEY_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not all(path.exists() for path in (found.ca, found.certificate, found.key)):
            _make(found, own_names)
            return found
        held, now = found.read(), datetime.datetime.now(datetime.UTC)
        if is_issued_by(AUTHORITY, held.certificate):
            if problem(held, own_names, at=now + RENEW_BEFORE):
                _make(found, own_names)
        elif wrong := problem(held, names, at=now):
            raise CertificateError(f"{found.certificate} {wrong}; replace it")
    except (OSError, ValueError) as error:
        raise CertificateError(f"certificates in {folder} can't be used: {error}") from error
    return found


def _make(target: Certificates, names: Sequence[str]) -> None:
    issued = issue(AUTHORITY, "dray webhook", names, VALID_FOR)
    _write(target.key, issued.key, 0o600)
    _write(target.certificate, issued.certificate, 0o644)
    _write(target.ca, issued.authority, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write atomically; others can never read the temporary file of a key."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
