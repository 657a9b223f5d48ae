"""Names of secret values, which logs and error messages never show."""

from functools import lru_cache
from typing import Any, Final

_SECRET_PARTS: Final = ("password", "passwd", "secret", "token", "authorization", "credential")
_SECRET_ENDS: Final = ("private_key", "tls_key", "api_key")
_HIDDEN: Final = "(hidden)"


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a value under ``name`` must not be shown."""
    lowered = name.lower().replace("-", "_")
    return any(part in lowered for part in _SECRET_PARTS) or lowered.endswith(_SECRET_ENDS)


def redacted(value: Any) -> Any:
    """``value`` with secrets hidden by key name, in nested dicts and lists too."""
    if isinstance(value, dict):
        return {
            key: _HIDDEN if is_secret(str(key)) else redacted(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value
