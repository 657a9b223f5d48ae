"""Names, labels and other texts with a fixed syntax (`k8s.io/apimachinery/.../validation`)."""

import re
from collections.abc import Mapping

from .status import FieldError, invalid, too_long

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_KEY_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NAME_PART_TEXT = f"name part {_KEY_TEXT}"
_TOO_MANY_SLASHES = (
    f"a valid label key {_KEY_TEXT} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_C_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


def dns_label(value: str) -> list[str]:
    """Why `value` is not a DNS label; empty when it is one."""
    return _checked(value, _LABEL, 63, _LABEL_TEXT, "characters")


def dns_subdomain(value: str) -> list[str]:
    """Why `value` is not a DNS subdomain; empty when it is one."""
    return _checked(value, _SUBDOMAIN, 253, _SUBDOMAIN_TEXT, "characters")


def c_identifier(value: str) -> list[str]:
    """Why `value` is not a C identifier; the caller checks its length."""
    return [] if _C_IDENTIFIER.fullmatch(value) else [_C_IDENTIFIER_TEXT]


def label_value(value: str) -> list[str]:
    """Why `value` is not a label value."""
    return _checked(value, _VALUE, 63, _LABEL_VALUE_TEXT, "bytes")


def qualified_name(value: str) -> list[str]:
    """Why `value` is not a label key, annotation key, taint key or condition type."""
    parts = value.split("/")
    if len(parts) > 2:
        return [_TOO_MANY_SLASHES]
    problems = []
    if len(parts) == 2:
        problems += [f"prefix part {text}" for text in _prefix(parts[0])]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        problems.append(_NAME_PART_TEXT)
    return problems


def _prefix(value: str) -> list[str]:
    if not value:
        return ["must be non-empty"]
    return _checked(value, _SUBDOMAIN, 253, _SUBDOMAIN_TEXT, "bytes")


def _checked(value: str, syntax: re.Pattern[str], limit: int, text: str, unit: str) -> list[str]:
    """Findings; Kubernetes' older and newer code name the same unit differently."""
    problems = []
    if len(value.encode()) > limit:
        problems.append(f"must be no more than {limit} {unit}")
    if not syntax.fullmatch(value):
        problems.append(text)
    return problems


def label_errors(labels: Mapping[str, object], field: str) -> list[FieldError]:
    """Findings about a label map."""
    errors = []
    for key, value in labels.items():
        errors += [invalid(field, key, text) for text in qualified_name(key)]
        errors += [invalid(field, value, text) for text in label_value(str(value))]
    return errors


def annotation_errors(annotations: Mapping[str, str], field: str) -> list[FieldError]:
    """Findings about an annotation map; together at most 256 KiB."""
    errors = [
        invalid(field, key, text) for key in annotations for text in qualified_name(key.lower())
    ]
    total_bytes = sum(len(key) + len(str(value)) for key, value in annotations.items())
    if total_bytes > 256 * 1024:
        errors.append(too_long(field, 256 * 1024))
    return errors
