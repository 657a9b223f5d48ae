"""Certificates created at start, and when they are replaced."""

import datetime
import ssl
import stat

import pytest
from cryptography import x509

from dray_webhook.service import certificates
from dray_webhook.service.certificates import CertificateError, ensure_certificates

NAMES = ("127.0.0.1", "localhost", "webhook.dray-system.svc")


def test_a_client_that_trusts_the_ca_accepts_every_name(tmp_path):
    made = ensure_certificates(tmp_path / "new", NAMES)

    server, client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    for name in NAMES:
        server, client = ssl.MemoryBIO(), ssl.MemoryBIO()
        trusting = ssl.create_default_context(cafile=made.ca)
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
        ours = context.wrap_bio(client, server, server_side=True)
        theirs = trusting.wrap_bio(server, client, server_hostname=name)
        for _ in range(4):
            for side in (theirs, ours):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        assert theirs.version() is not None


def test_only_the_owner_reads_the_key(tmp_path):
    made = ensure_certificates(tmp_path, NAMES)

    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600


def test_they_are_kept_from_start_to_start(tmp_path):
    before = ensure_certificates(tmp_path, NAMES).certificate.read_bytes()

    assert ensure_certificates(tmp_path, NAMES[:1]).certificate.read_bytes() == before


def test_a_new_name_creates_them_again(tmp_path):
    before = ensure_certificates(tmp_path, NAMES).ca.read_bytes()

    made = ensure_certificates(tmp_path, (*NAMES, "other.example"))

    served = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "other.example" in names.get_values_for_type(x509.DNSName)
    assert made.ca.read_bytes() != before


def test_an_expiring_certificate_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "VALID_FOR", datetime.timedelta(days=1))
    before = ensure_certificates(tmp_path, NAMES).certificate.read_bytes()
    monkeypatch.undo()

    assert ensure_certificates(tmp_path, NAMES).certificate.read_bytes() != before


def test_somebody_elses_certificate_is_reported_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY", "a company's CA")
    before = ensure_certificates(tmp_path, NAMES).certificate.read_bytes()
    monkeypatch.undo()

    with pytest.raises(CertificateError, match=r"lacks the names other\.example; replace it"):
        ensure_certificates(tmp_path, (*NAMES, "other.example"))

    assert (tmp_path / "tls.crt").read_bytes() == before


def test_somebody_elses_certificate_of_thirty_days_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY", "a company's CA")
    monkeypatch.setattr(certificates, "VALID_FOR", datetime.timedelta(days=29))
    before = ensure_certificates(tmp_path, NAMES).certificate.read_bytes()
    monkeypatch.undo()

    assert ensure_certificates(tmp_path, NAMES).certificate.read_bytes() == before


def test_somebody_elses_expired_certificate_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY", "a company's CA")
    monkeypatch.setattr(certificates, "VALID_FOR", datetime.timedelta(minutes=-1))
    ensure_certificates(tmp_path, NAMES)
    monkeypatch.undo()

    with pytest.raises(CertificateError, match=r"tls\.crt expires at .* UTC; replace it"):
        ensure_certificates(tmp_path, NAMES)


def test_the_error_names_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(CertificateError, match="can't be used"):
        ensure_certificates(tmp_path / "file", NAMES)


@pytest.mark.parametrize("lost", ["tls.key", "ca.crt"])
def test_files_of_two_starts_are_created_again(tmp_path, lost):
    ensure_certificates(tmp_path / "other", NAMES)
    made = ensure_certificates(tmp_path / "this", NAMES)
    (tmp_path / "other" / lost).replace(tmp_path / "this" / lost)

    again = ensure_certificates(tmp_path / "this", NAMES)

    served = x509.load_pem_x509_certificate(again.certificate.read_bytes())
    served.verify_directly_issued_by(x509.load_pem_x509_certificate(again.ca.read_bytes()))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(made.certificate, made.key)


def test_somebody_elses_key_that_does_not_fit_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY", "a company's CA")
    ensure_certificates(tmp_path / "other", NAMES)
    ensure_certificates(tmp_path / "this", NAMES)
    monkeypatch.undo()
    (tmp_path / "other" / "tls.key").replace(tmp_path / "this" / "tls.key")

    with pytest.raises(CertificateError, match=r"does not belong to tls\.key; replace it"):
        ensure_certificates(tmp_path / "this", NAMES)
