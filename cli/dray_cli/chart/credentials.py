"""The passwords and keys of an installation's NATS. Pure except for randomness."""

import secrets
from collections.abc import Mapping

from dray.bus.topology import ACCESS, READER, RECORDER
from dray_claim_controller.identities.signing import AccountKey, new_seed
from dray_cli.operator_secret import AUTHORITIES, URL, password_key

_ADMIN, SYSTEM = "admin", "system"
USERS = (*(one.role for one in ACCESS if not one.has_user_per_node), _ADMIN, SYSTEM)
_ISSUER, _ISSUER_SEED = "issuer", "issuer-seed"
_OPERATOR_USERS = (READER, RECORDER)
"""Users whose passwords are in the Secret for people."""


def completed(held: Mapping[str, str]) -> dict[str, str]:
    """The Secret's data with missing values added; existing values are kept."""
    data = dict(held)
    for user in USERS:
        if not data.get(password_key(user)):
            # NATS would read a value that begins with a digit as a number.
            data[password_key(user)] = f"p{secrets.token_hex(24)}"
    if not data.get(_ISSUER_SEED):
        data[_ISSUER_SEED] = new_seed()
    data[_ISSUER] = AccountKey(data[_ISSUER_SEED]).public
    return data


def lacking(held: Mapping[str, str]) -> list[str]:
    """The keys that the Secret for people needs and that this data does not have."""
    return [key for user in _OPERATOR_USERS if not held.get(key := password_key(user))]


def operators(held: Mapping[str, str], url: str, authorities: str) -> dict[str, str]:
    """The data of the Secret for users of ``dray doctor``, ``trace``, ``top`` and ``record``."""
    passwords = {password_key(user): held[password_key(user)] for user in _OPERATOR_USERS}
    return {URL: url, AUTHORITIES: authorities, **passwords}
