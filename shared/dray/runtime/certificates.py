"""The adapter to ``cryptography``: makes an own authority, and a server certificate from it.

All keys and certificates are PEM bytes; anything else is a ValueError.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"
"""The names of such files, as in a Secret of type ``kubernetes.io/tls``."""
_CLOCK_SKEW = datetime.timedelta(hours=1)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class Issued:
    """A server's certificate and key, and the certificates of the authorities that may have signed
    it."""

    authority: bytes
    certificate: bytes
    key: bytes


def issue(
    authority: str,
    subject: str,
    names: Sequence[str],
    valid_for: datetime.timedelta,
    *,
    mutual: bool = False,
) -> Issued:
    """A new authority with this name, and one certificate from it for ``names``.

    ``names`` are DNS names and IP addresses. ``mutual``: servers that call each other also use it
    as their client certificate. The authority's key is discarded.
    """
    usages = [ExtendedKeyUsageOID.SERVER_AUTH]
    usages += [ExtendedKeyUsageOID.CLIENT_AUTH] if mutual else []
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name(authority)
    ca = _authority(issuer, ca_key, valid_for)
    served = (
        _leaf(_name(subject), issuer, key, ca_key, valid_for)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return Issued(ca.public_bytes(_PEM), served.public_bytes(_PEM), _pem(key))


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate and key with which a client proves its user and groups."""

    certificate: bytes
    key: bytes


class ClientAuthority:
    """A new authority. Kubernetes' API server accepts its certificates as users.

    The common name is the user, and organisations are its groups.
    """

    def __init__(self, name: str, valid_for: datetime.timedelta) -> None:
        self._name, self._valid_for = _name(name), valid_for
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = _authority(self._name, self._key, valid_for).public_bytes(_PEM)

    def issue(self, user: str, groups: Sequence[str] = ()) -> ClientCertificate:
        """A new certificate with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(user, groups)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        issued = (
            _leaf(subject, self._name, key, self._key, self._valid_for)
            .add_extension(usage, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return ClientCertificate(issued.public_bytes(_PEM), _pem(key))


def signing_key() -> bytes:
    """A new RSA key for signing service-account tokens."""
    return _pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))


def is_issued_by(authority: str, certificate: bytes) -> bool:
    """Whether the certificate names the authority as its issuer. Raises ValueError."""
    return x509.load_pem_x509_certificate(certificate).issuer == _name(authority)


def expires_at(certificate: bytes) -> datetime.datetime:
    """The end of the certificate's validity, in UTC. Raises ValueError."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def still_valid(certificates: bytes, *, at: datetime.datetime) -> bytes:
    """The certificates that have not expired at that time, the newest first; none if they can't be
    read."""
    try:
        found = x509.load_pem_x509_certificates(certificates)
    except ValueError:
        return b""
    valid = [one for one in found if one.not_valid_after_utc > at]
    valid.sort(key=lambda one: one.not_valid_before_utc, reverse=True)
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in valid)


def problem(held: Issued, names: Sequence[str], *, at: datetime.datetime) -> str:
    """Why these certificates can't serve ``names`` at that time; empty if they can.

    Also reports files that do not belong together, for example after an interrupted start.
    Raises ValueError.
    """
    certificate = x509.load_pem_x509_certificate(held.certificate)
    if certificate.not_valid_after_utc < at:
        return f"expires at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    try:
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "has no subject alternative names"
    if missing := [name for name in names if _alternative(name) not in present]:
        return f"lacks the names {', '.join(missing)}"
    key = serialization.load_pem_private_key(held.key, password=None)
    if key.public_key() != certificate.public_key():
        return f"does not belong to {KEY_FILE}"
    if not any(
        _has_signed(authority, certificate)
        for authority in x509.load_pem_x509_certificates(held.authority)
    ):
        return f"was not issued by {CA_FILE}"
    return ""


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    of = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organisations]
    return x509.Name([*of, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _authority(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, valid_for: datetime.timedelta
) -> x509.Certificate:
    """An authority's own certificate."""
    return (
        _builder(name, name, key, key, valid_for)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    valid_for: datetime.timedelta,
) -> x509.CertificateBuilder:
    """A certificate of a server or client, without its purpose."""
    return (
        _builder(subject, issuer, key, issuer_key, valid_for)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    valid_for: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signer, critical=False)
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


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        _PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
