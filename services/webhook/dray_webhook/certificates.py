"""The door to ``cryptography``: a CA of its own and a server certificate, made at start."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.domain.errors import PermanentError

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"
AUTHORITY = "dray webhook CA"
VALID_FOR = datetime.timedelta(days=3650)
RENEW_BEFORE = datetime.timedelta(days=30)
_CLOCK_SKEW = datetime.timedelta(hours=1)


class CertificateError(PermanentError):
    """The certificates can't be read, made or used."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files; ``ca`` is what ``caBundle`` of a registration needs."""

    ca: Path
    certificate: Path
    key: Path


def ensure_certificates(folder: Path, names: Sequence[str]) -> Certificates:
    """The certificates in ``folder``, made if they are absent, and anew if they were made here
    and expire or lack one of ``names`` (DNS names and IP addresses).

    Raises:
        CertificateError: the folder can't be used, or somebody else's certificate is there
            and lacks a name or expires.
    """
    found = Certificates(folder / CA_FILE, folder / CERTIFICATE_FILE, folder / KEY_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not all(path.exists() for path in (found.ca, found.certificate, found.key)):
            _make(found, names)
            return found
        served = x509.load_pem_x509_certificate(found.certificate.read_bytes())
        problem = _problem(served, names) or _mismatch(served, found)
        if problem and served.issuer == _name(AUTHORITY):
            _make(found, names)
        elif problem:
            raise CertificateError(f"{found.certificate} {problem}; replace it")
    except (OSError, ValueError) as error:
        raise CertificateError(f"certificates in {folder} can't be used: {error}") from error
    return found


def _problem(certificate: x509.Certificate, names: Sequence[str]) -> str:
    now = datetime.datetime.now(datetime.UTC)
    if certificate.not_valid_after_utc - RENEW_BEFORE < now:
        return f"expires at {certificate.not_valid_after_utc:%Y-%m-%d}"
    try:
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "has no subject alternative names"
    missing = [name for name in names if _alternative(name) not in present]
    return f"lacks the names {', '.join(missing)}" if missing else ""


def _mismatch(certificate: x509.Certificate, found: Certificates) -> str:
    """What doesn't belong together, as after a start that was cut short between two files."""
    key = serialization.load_pem_private_key(found.key.read_bytes(), password=None)
    if key.public_key() != certificate.public_key():
        return f"does not belong to {found.key.name}"
    for authority in x509.load_pem_x509_certificates(found.ca.read_bytes()):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return ""
    return f"was not issued by {found.ca.name}"


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _make(target: Certificates, names: Sequence[str]) -> None:
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = (
        _builder(_name(AUTHORITY), ca_key, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    served = (
        _builder(_name("dray webhook"), key, ca_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(target.key, secret, 0o600)
    _write(target.certificate, served.public_bytes(pem), 0o644)
    _write(target.ca, authority.public_bytes(pem), 0o644)


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    issuer = issuer_key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_name(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others on the way."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
