"""Validation of names of drivers, pools, devices, attributes and shares."""

from uuid import UUID

from .names import c_identifier, dns_label, dns_subdomain
from .status import FieldError, invalid, required, too_long

_MAX_DRIVER_BYTES = 63
_MAX_POOL_BYTES = 253
_MAX_IDENTIFIER_BYTES = 32
_NORMAL_UID = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
    "lowercase hexadecimal characters"
)
_DOMAIN_AND_NAME = "a fully qualified name must be a domain and a name separated by a slash"


def label_errors(name: str, field: str) -> list[FieldError]:
    """Findings about the name of a device or a request; an empty one is invalid."""
    return [invalid(field, name, text) for text in dns_label(name)]


def required_label_errors(name: str, field: str) -> list[FieldError]:
    """Findings about the name of a counter set."""
    return label_errors(name, field) if name else [required(field)]


def driver_errors(driver: str, field: str) -> list[FieldError]:
    """Findings about a driver's name, in upper or lower case."""
    if not driver:
        return [required(field)]
    found = [too_long(field, _MAX_DRIVER_BYTES)] if len(driver) > _MAX_DRIVER_BYTES else []
    return found + [invalid(field, driver, text) for text in dns_subdomain(driver.lower())]


def pool_errors(name: str, field: str) -> list[FieldError]:
    """Findings about a pool's name: DNS subdomains joined by slashes."""
    if not name:
        return [required(field)]
    found = [too_long(field, _MAX_POOL_BYTES)] if len(name) > _MAX_POOL_BYTES else []
    for part in name.split("/"):
        found += [invalid(field, part, text) for text in dns_subdomain(part)]
    return found


def qualified_errors(name: str, field: str) -> list[FieldError]:
    """Findings about the name of an attribute or capacity, `id` or `domain/id`.

    More than one slash is accepted, as in Kubernetes.
    """
    match name.split("/"):
        case [identifier]:
            return _identifier(identifier, field)
        case [domain, identifier]:
            empty = invalid(field, "", "the domain must not be empty")
            found = driver_errors(domain, field) if domain else [empty]
            if identifier:
                return found + _identifier(identifier, field)
            return [*found, invalid(field, "", "the name must not be empty")]
        case _:
            return []


def fully_qualified_errors(name: str, field: str) -> list[FieldError]:
    """Findings about the name of an attribute that needs its domain."""
    found = qualified_errors(name, field)
    return found if "/" in name else [*found, invalid(field, name, _DOMAIN_AND_NAME)]


def _identifier(name: str, field: str) -> list[FieldError]:
    found = [too_long(field, _MAX_IDENTIFIER_BYTES)] if len(name) > _MAX_IDENTIFIER_BYTES else []
    return found + [invalid(field, name, text) for text in c_identifier(name)]


def uid_errors(value: str, field: str) -> list[FieldError]:
    """Findings about a share's id."""
    try:
        normal = str(UUID(value)) == value
    except ValueError:
        return [invalid(field, value, f"error validating uid: invalid UUID length: {len(value)}")]
    return [] if normal else [invalid(field, value, _NORMAL_UID)]
