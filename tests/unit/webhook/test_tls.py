"""The server's TLS follows the certificates' files."""

import datetime
import ssl

import pytest
import structlog
from structlog.testing import capture_logs

from dray_webhook.service import certificates
from dray_webhook.service.certificates import Certificates, ensure_certificates
from dray_webhook.service.tls import ServerTls

NAMES = ("127.0.0.1", "webhook.dray-system.svc")
DAY = datetime.timedelta(days=1)
COMPANY = "a company's CA"


@pytest.fixture
def issue(monkeypatch):
    """Makes the certificates of a company's authority in a folder."""

    def made(folder, *, days=90.0, names=NAMES) -> Certificates:
        with monkeypatch.context() as patched:
            patched.setattr(certificates, "AUTHORITY", COMPANY)
            patched.setattr(certificates, "VALID_FOR", days * DAY)
            for path in folder.glob("*"):
                path.unlink()
            return ensure_certificates(folder, names)

    return made


def served(tls: ServerTls, *, name: str | None = NAMES[1]) -> bytes:
    """The certificate that a new connection gets."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    ours = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = theirs.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found).encode()


@pytest.mark.parametrize("name", [NAMES[1], None])
def test_a_renewed_certificate_is_served_without_a_restart(tmp_path, issue, name):
    first = issue(tmp_path)
    tls = ServerTls(first, NAMES)
    before = first.certificate.read_bytes()
    assert served(tls, name=name) == before

    issue(tmp_path)
    tls.reload()

    after = first.certificate.read_bytes()
    assert after != before
    assert served(tls, name=name) == after


def test_files_that_can_not_be_used_leave_the_old_certificate_until_they_can(tmp_path, issue):
    files = issue(tmp_path)
    tls = ServerTls(files, NAMES)
    before, key = files.certificate.read_bytes(), files.key.read_bytes()

    issue(tmp_path)
    after, new_key = files.certificate.read_bytes(), files.key.read_bytes()
    files.key.write_bytes(key)
    tls.reload()
    assert served(tls) == before
    assert "does not belong to tls.key" in (tls.problem or "")

    files.key.unlink()
    tls.reload()
    assert served(tls) == before
    assert "can't be used" in (tls.problem or "")

    files.key.write_bytes(new_key)
    tls.reload()
    assert served(tls) == after
    assert tls.problem is None


def test_a_new_certificate_that_lacks_a_name_or_has_expired_is_not_served(tmp_path, issue):
    files = issue(tmp_path)
    tls = ServerTls(files, NAMES)
    before = files.certificate.read_bytes()

    issue(tmp_path, names=NAMES[:1])
    tls.reload()
    assert "lacks the names" in (tls.problem or "")

    issue(tmp_path, days=-0.01)
    tls.reload()
    assert "expires at" in (tls.problem or "")
    assert served(tls) == before


def test_it_warns_of_the_last_thirty_days_and_goes_on_serving(tmp_path, issue):
    tls = ServerTls(issue(tmp_path), NAMES)
    end = tls.expires_at

    assert tls.problem_at(end - 31 * DAY) is None
    assert "expires in 12 days" in (tls.problem_at(end - 12.5 * DAY) or "")
    assert "expired at" in (tls.problem_at(end + DAY) or "")


async def test_the_warning_is_logged_once(tmp_path, issue, monkeypatch):
    structlog.reset_defaults()  # Other tests of the process may have set a level.
    tls = ServerTls(issue(tmp_path, days=20), NAMES)
    looks = 0

    async def no_pause(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            raise TimeoutError

    monkeypatch.setattr("dray_webhook.service.tls.asyncio.sleep", no_pause)
    with capture_logs() as logs, pytest.raises(TimeoutError):
        await tls.run()

    warnings = [line["problem"] for line in logs if line["log_level"] == "warning"]
    assert len(warnings) == 1
    assert "expires in 19 days" in warnings[0]
