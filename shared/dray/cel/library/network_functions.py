"""Kubernetes' libraries for IP addresses, networks and URLs."""

from collections.abc import Callable
from typing import Any, Final

from dray.cel.errors import CelEvaluationError
from dray.cel.library.network import (
    AddressError,
    Cidr,
    Ip,
    is_global_unicast,
    is_link_local_multicast,
    parse_cidr,
    parse_ip,
)
from dray.cel.library.urls import Url, UrlError, check_url, parse_url
from dray.cel.library.values import Value, no_overload, take


def _parsed(function: str, parse: Callable[[str], Any]) -> Callable[[Value], Value]:
    def call(text: Value) -> Value:
        take(function, (text,), str)
        try:
            return parse(text)
        except (AddressError, UrlError) as error:
            raise CelEvaluationError(str(error)) from None

    return call


def _parses(function: str, parse: Callable[[str], Any]) -> Callable[[Value], bool]:
    def call(text: Value) -> bool:
        take(function, (text,), str)
        try:
            parse(text)
        except (AddressError, UrlError):
            return False
        return True

    return call


def _of(kind: type, function: str, read: Callable[[Any], Value]) -> Callable[[Value], Value]:
    def call(value: Value) -> Value:
        if type(value) is not kind:
            raise no_overload(function, value)
        return read(value)

    return call


def _contains_ip(network: Value, other: Value) -> bool:
    if type(network) is not Cidr or type(other) not in (Ip, str):
        raise no_overload("containsIP", network, other)
    return network.contains_ip(_to_ip(other) if type(other) is str else other)


def _contains_cidr(network: Value, other: Value) -> bool:
    if type(network) is not Cidr or type(other) not in (Cidr, str):
        raise no_overload("containsCIDR", network, other)
    return network.contains(_to_cidr(other) if type(other) is str else other)


def _ip(value: Value) -> Ip:
    if type(value) is Cidr:
        return value.ip
    return Ip(_to_ip(value).address)


_to_ip = _parsed("ip", parse_ip)
_to_cidr = _parsed("cidr", parse_cidr)
FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "ip": _ip,
    "isIP": _parses("isIP", parse_ip),
    "ip.isCanonical": _parsed("ip.isCanonical", lambda text: str(parse_ip(text)) == text),
    "family": _of(Ip, "family", lambda ip: ip.address.version),
    "isUnspecified": _of(Ip, "isUnspecified", lambda ip: ip.address.is_unspecified),
    "isLoopback": _of(Ip, "isLoopback", lambda ip: ip.address.is_loopback),
    "isLinkLocalMulticast": _of(Ip, "isLinkLocalMulticast", is_link_local_multicast),
    "isLinkLocalUnicast": _of(Ip, "isLinkLocalUnicast", lambda ip: ip.address.is_link_local),
    "isGlobalUnicast": _of(Ip, "isGlobalUnicast", is_global_unicast),
    "cidr": _to_cidr,
    "isCIDR": _parses("isCIDR", parse_cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": _of(Cidr, "prefixLength", lambda cidr: cidr.prefix_length),
    "masked": _of(Cidr, "masked", lambda cidr: cidr.masked()),
    "url": _parsed("url", parse_url),
    "isURL": _parses("isURL", check_url),
    "getScheme": _of(Url, "getScheme", lambda url: url.scheme),
    "getHost": _of(Url, "getHost", lambda url: url.host),
    "getHostname": _of(Url, "getHostname", lambda url: url.hostname),
    "getPort": _of(Url, "getPort", lambda url: url.port),
    "getEscapedPath": _of(Url, "getEscapedPath", lambda url: url.escaped_path),
    "getQuery": _of(Url, "getQuery", lambda url: url.parameters()),
}
