"""The adapter to ``cryptography`` for NATS: the key of the callout's issuer, and signed JWTs.

Keys are written as NATS does (nkeys): a prefix for the kind, the key, and a CRC-16, in base32.
The package ``nkeys`` does the same on top of a second library for Ed25519.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dray.api.errors import InvalidInputError

_ACCOUNT: Final = 0
_SEED: Final = 18 << 3
_SEED_BYTES: Final = 32
_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}


class AccountKey:
    """The key that signs users: its public half is the issuer in nats-server's configuration."""

    def __init__(self, seed: str) -> None:
        """Raises InvalidInputError if ``seed`` is not a seed of an account key (``SA…``)."""
        self._key = Ed25519PrivateKey.from_private_bytes(_raw_seed(seed))
        self.public = _encoded(bytes([_ACCOUNT]), self._key.public_key().public_bytes_raw())
        """``A…``, as NATS writes it."""

    def signed(self, claims: Mapping[str, Any]) -> str:
        """The claims as a NATS JWT, issued by this key; ``jti`` is made of them."""
        issued = {**claims, "iss": self.public}
        digest = hashlib.sha256(msgspec.json.encode(issued)).digest()
        body = {**issued, "jti": base64.b32encode(digest).decode().rstrip("=")}
        text = f"{_part(msgspec.json.encode(_HEADER))}.{_part(msgspec.json.encode(body))}"
        return f"{text}.{_part(self._key.sign(text.encode()))}"


def new_seed() -> str:
    """The seed of a new account key."""
    return _encoded(
        bytes([_SEED | _ACCOUNT >> 5, (_ACCOUNT & 31) << 3]),
        Ed25519PrivateKey.generate().private_bytes_raw(),
    )


def _raw_seed(seed: str) -> bytes:
    text = seed.strip()
    try:
        whole = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        whole = b""
    content, checksum = whole[:-2], whole[-2:]
    is_seed = len(content) == 2 + _SEED_BYTES and _checksum(content) == checksum
    if not is_seed or content[0] != _SEED | _ACCOUNT >> 5 or content[1] != (_ACCOUNT & 31) << 3:
        raise InvalidInputError(
            "the issuer's seed is not one of a NATS account key: expected 58 characters that begin "
            "with SA, as `nsc generate nkey --account` prints them"
        )
    return content[2:]


def _encoded(prefix: bytes, key: bytes) -> str:
    content = prefix + key
    return base64.b32encode(content + _checksum(content)).decode().rstrip("=")


def _checksum(content: bytes) -> bytes:
    """CRC-16 (XMODEM), the low byte first."""
    return binascii.crc_hqx(content, 0).to_bytes(2, "little")


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
