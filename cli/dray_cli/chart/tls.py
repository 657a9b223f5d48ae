"""A server's certificate in a Secret, and its renewal before it expires. Pure except for keys.

Clients must trust a new authority before the server uses it. So a renewal has two steps: the new
authority is added to ``ca.crt``; a later run, when every client has read that, puts the new
certificate into ``tls.crt``. The authorities' keys are not kept.
"""

import datetime
from collections.abc import Mapping, Sequence

from dray.runtime.certificates import (
    CA_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    Issued,
    issue,
    problem,
    still_valid,
)

_STAGED_CERTIFICATE, _STAGED_KEY, STAGED_AT = "staged.crt", "staged.key", "staged-at"
_VALID_FOR = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=60)
DISTRIBUTION = datetime.timedelta(minutes=10)
"""After this time every client has a changed Secret: kubelets update volumes every minute or
two."""


def renewed(
    held: Mapping[str, str], subject: str, names: Sequence[str], now: datetime.datetime
) -> dict[str, str] | None:
    """The Secret's new data, or None if nothing changes. Every certificate is also valid for
    servers that connect to each other, as NATS servers do."""
    current = _issued(held, CERTIFICATE_FILE, KEY_FILE)
    if not _serves(current, names, now):
        return _fresh(subject, names, held.get(CA_FILE, ""), now)
    if STAGED_AT in held:
        return _swapped(held, names, now)
    if _serves(current, names, now + RENEW_BEFORE):
        return None
    made = issue(f"{subject} CA", subject, names, _VALID_FOR, mutual=True)
    return {
        **held,
        CA_FILE: _joined(made.authority.decode(), held[CA_FILE], now),
        _STAGED_CERTIFICATE: made.certificate.decode(),
        _STAGED_KEY: made.key.decode(),
        STAGED_AT: now.isoformat(timespec="seconds"),
    }


def _swapped(
    held: Mapping[str, str], names: Sequence[str], now: datetime.datetime
) -> dict[str, str] | None:
    """The data with the staged certificate in use; None until every client knows its authority."""
    if now < datetime.datetime.fromisoformat(held[STAGED_AT]) + DISTRIBUTION:
        return None
    kept = {
        key: text
        for key, text in held.items()
        if key not in (_STAGED_CERTIFICATE, _STAGED_KEY, STAGED_AT)
    }
    if not _serves(_issued(held, _STAGED_CERTIFICATE, _STAGED_KEY), names, now):
        return kept  # It is made again in the next run.
    return {
        **kept,
        CERTIFICATE_FILE: held[_STAGED_CERTIFICATE],
        KEY_FILE: held[_STAGED_KEY],
    }


def _fresh(
    subject: str, names: Sequence[str], known: str, now: datetime.datetime
) -> dict[str, str]:
    """Data with a new certificate for immediate use, because there is no valid one."""
    made = issue(f"{subject} CA", subject, names, _VALID_FOR, mutual=True)
    return {
        CA_FILE: _joined(made.authority.decode(), known, now),
        CERTIFICATE_FILE: made.certificate.decode(),
        KEY_FILE: made.key.decode(),
    }


def _joined(authority: str, known: str, now: datetime.datetime) -> str:
    return authority + still_valid(known.encode(), at=now).decode()


def _issued(held: Mapping[str, str], certificate: str, key: str) -> Issued | None:
    texts = [held.get(name, "").encode() for name in (CA_FILE, certificate, key)]
    return Issued(*texts) if all(texts) else None


def _serves(issued: Issued | None, names: Sequence[str], at: datetime.datetime) -> bool:
    try:
        return issued is not None and not problem(issued, names, at=at)
    except ValueError:
        return False
