"""The named formats of Kubernetes' ``format`` library, and their messages about a wrong text."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Final

from dray.cel.library.urls import UrlError, check_url

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_OLD_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LOWER: Final = "must consist of lower case alphanumeric characters"
_ENDS: Final = "must start and end with an alphanumeric character"
_KEY_RULE: Final = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}"
_UUID: Final = r"(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})"
_BASE64: Final = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format. ``problems`` lists what is wrong with a text; it is empty for a valid text."""

    name: str
    problems: Callable[[str], list[str]]
    regex_size: int
    """Length of the pattern; the cost of a check depends on it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFormat) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _longer(text: str, most: int) -> list[str]:
    too_long = len(text.encode("utf-8", "surrogateescape")) > most
    return [f"must be no more than {most} characters"] if too_long else []


def _rule(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _label(text: str) -> list[str]:
    found = _longer(text, 63)
    if re.fullmatch(_LABEL, text):
        return found
    if re.fullmatch(_SUBDOMAIN, text):
        return [*found, "must not contain dots"]
    rule = f"a lowercase RFC 1123 label {_LOWER} or '-', and {_ENDS}"
    return [*found, _rule(rule, _LABEL, "my-name", "123-abc")]


def _subdomain(text: str) -> list[str]:
    if re.fullmatch(_SUBDOMAIN, text):
        return _longer(text, 253)
    rule = f"a lowercase RFC 1123 subdomain {_LOWER}, '-' or '.', and {_ENDS}"
    return [*_longer(text, 253), _rule(rule, _SUBDOMAIN, "example.com")]


def _old_label(text: str) -> list[str]:
    if re.fullmatch(_OLD_LABEL, text):
        return _longer(text, 63)
    rule = (
        f"a DNS-1035 label {_LOWER} or '-', start with an alphabetic character, "
        "and end with an alphanumeric character"
    )
    return [*_longer(text, 63), _rule(rule, _OLD_LABEL, "my-name", "abc-123")]


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    rule = _rule(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
    if len(parts) > 2:
        optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {rule}{optional}"]
    found = [f"prefix part {problem}" for problem in _prefix(parts[:-1])]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        found.append("name part must be no more than 63 bytes")
    return found if re.fullmatch(_KEY, name) else [*found, f"name part {rule}"]


def _prefix(parts: list[str]) -> list[str]:
    if not parts:
        return []
    return _subdomain(parts[0]) if parts[0] else ["must be non-empty"]


def _label_value(text: str) -> list[str]:
    found = [p.replace("characters", "bytes") for p in _longer(text, 63)]
    if re.fullmatch(f"({_KEY})?", text):
        return found
    rule = "a valid label must be an empty string or " + _KEY_RULE.removeprefix("must ")
    return [*found, _rule(rule, f"({_KEY})?", "MyValue", "my_value", "12345")]


def _masked(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A prefix may end in a dash, because more text follows it."""
    return lambda text: check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> list[str]:
    try:
        check_url(text)
    except UrlError as error:
        return [str(error)]
    return []


def _matching(pattern: str, problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if re.fullmatch(pattern, text) else [problem]


def _is_date(text: str) -> bool:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    leap = text[:4] == "0000"  # a leap year that Python's dates lack
    try:
        date.fromisoformat("2000" + text[4:] if leap else text)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, letter, rest = text.lower().partition("t")
    match = _TIME.fullmatch(rest.partition("t")[0])
    if not letter or not _is_date(day) or match is None:
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _fitting(test: Callable[[str], bool], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if test(text) else [problem]


_TIME_PATTERN_SIZE: Final = 71
FORMATS: Final[dict[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _old_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _masked(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _masked(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _masked(_old_label), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _matching(_UUID, "does not match the UUID format"), 70),
    "byte": NamedFormat("byte", _matching(_BASE64, "invalid base64"), 84),
    "date": NamedFormat("date", _fitting(_is_date, "invalid date"), _TIME_PATTERN_SIZE),
    "datetime": NamedFormat("datetime", _fitting(_is_datetime, "invalid datetime"),
                            _TIME_PATTERN_SIZE),
}  # fmt: skip
"""The formats, by their CEL names."""
