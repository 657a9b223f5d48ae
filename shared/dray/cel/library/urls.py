"""URLs as CEL's functions see them: split by the rules of Go's ``net/url``, not of a browser."""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from dray.cel.library.go_quotes import quoted

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ASCII_ESCAPE: Final = re.compile(r"%(?!25)[0-7][0-9A-Fa-f]")
_NO_HOST: Final = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_PATH_SAFE: Final = "-_.~$&+,/:;=@"
_PATH_VALID: Final = re.compile(r"[A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]*")
_MOST_PARAMETERS: Final = 10_000


class UrlError(ValueError):
    """The text is not an absolute URL or path."""


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL. ``host`` includes the port."""

    scheme: str
    user: str
    host: str
    path: str
    query: str
    fragment: str
    opaque: str = ""

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        return self._split_host()[0]

    @property
    def port(self) -> str:
        """The port, or empty."""
        return self._split_host()[1]

    @property
    def escaped_path(self) -> str:
        """The path as written if that is valid, else with the necessary escapes."""
        if _PATH_VALID.fullmatch(self.path) or self.path == "*":
            return self.path
        decoded = unquote_to_bytes(self.path.encode("utf-8", "surrogateescape"))
        return quote_from_bytes(decoded, _PATH_SAFE)

    def parameters(self) -> dict[str, list[str]]:
        """The query's parameters. Invalid ones are left out."""
        found: dict[str, list[str]] = {}
        parts = self.query.split("&")
        if len(parts) > _MOST_PARAMETERS:
            return found
        for part in parts:
            if not part or ";" in part or _BAD_ESCAPE.search(part):
                continue
            key, _, value = part.partition("=")
            found.setdefault(_decoded_plus(key), []).append(_decoded_plus(value))
        return found

    def _split_host(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        if not colon or not _PORT.fullmatch(colon + port):
            host, port = self.host, ""
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port


@lru_cache(maxsize=1024)
def parse_url(text: str) -> Url:
    """The parts of an absolute URL or of an absolute path.

    Raises:
        UrlError: ``text`` is neither.
    """
    check_url(text)
    before, _, fragment = text.partition("#")
    _check_escapes(fragment)
    return _parse(before, is_request=False, fragment=fragment)


def check_url(text: str) -> None:
    """Refuse a text that is neither an absolute URL nor an absolute path, in Go's words.

    Raises:
        UrlError: it is neither.
    """
    try:
        _parse(text, is_request=True)
    except UrlError as error:
        raise UrlError(f"parse {quoted(text)}: {error}") from None


def _parse(text: str, *, is_request: bool, fragment: str = "") -> Url:
    if any(char < " " or char == "\x7f" for char in text):
        raise UrlError("net/url: invalid control character in URL")
    if not text and is_request:
        raise UrlError("empty url")
    if text == "*":
        return Url("", "", "", "*", "", fragment)
    scheme, rest = _scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, "", "", "", query, fragment, rest)
        if is_request:
            raise UrlError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    user = host = ""
    if rest.startswith("//") and (scheme or (not is_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(scheme, authority)
    _check_escapes(rest)
    return Url(scheme, user, host, rest, query, fragment)


def _scheme(text: str) -> tuple[str, str]:
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    match = _SCHEME.match(text)
    return (match[1].lower(), text[match.end() :]) if match else ("", text)


def _authority(scheme: str, authority: str) -> tuple[str, str]:
    user, at, host = authority.rpartition("@")
    shown = _host(scheme, host)
    if at and not _USER.fullmatch(user):
        raise UrlError("net/url: invalid userinfo")
    _check_escapes(user)
    return user, shown


def _host(scheme: str, host: str) -> str:
    opening = host.rfind("[")
    if opening > 0:
        raise UrlError("invalid IP-literal")
    if opening == 0:
        return _ip_literal(host)
    first, last = host.find(":"), host.rfind(":")
    if first >= 0:
        start = first if scheme in ("http", "https") else last
        if not _PORT.fullmatch(host[start:]):
            raise UrlError(f"invalid port {quoted(host[start:])} after host")
    return _decoded_host(host)


def _ip_literal(host: str) -> str:
    closing = host.rfind("]")
    if closing < 0:
        raise UrlError("missing ']' in host")
    port = host[closing + 1 :]
    if not _PORT.fullmatch(port):
        raise UrlError(f"invalid port {quoted(port)} after host")
    name, percent, zone = host[1:closing].partition("%25")
    _check_escapes(zone)
    shown = _decoded_host(name)
    try:
        IPv6Address(shown)
    except AddressValueError:
        raise UrlError("invalid host: no IPv6 address in the brackets") from None
    if percent and not zone:
        raise UrlError("invalid host: empty zone")
    return f"[{shown}{'%' + _text(unquote_to_bytes(zone)) if percent else ''}]{port}"


def _decoded_host(host: str) -> str:
    wrong = [m for m in (_BAD_ESCAPE.search(host), _ASCII_ESCAPE.search(host)) if m]
    if wrong:
        at = min(match.start() for match in wrong)
        raise UrlError(f"invalid URL escape {quoted(host[at : at + 3])}")
    strange = _NO_HOST.search(host)
    if strange:
        raise UrlError(f"invalid character {quoted(strange.group())} in host name")
    return _text(unquote_to_bytes(host))


def _check_escapes(text: str) -> None:
    match = _BAD_ESCAPE.search(text)
    if match:
        raise UrlError(f"invalid URL escape {quoted(text[match.start() : match.start() + 3])}")


def _decoded_plus(text: str) -> str:
    return _text(unquote_to_bytes(text.replace("+", " ")))


def _text(decoded: bytes) -> str:
    """The text of decoded bytes. A byte that is not UTF-8 becomes one character."""
    return decoded.decode("utf-8", "surrogateescape")
