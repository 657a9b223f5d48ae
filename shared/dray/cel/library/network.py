"""IP addresses and networks, read as Go's ``net/netip`` reads them, within Kubernetes' limits."""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final

_DOCUMENTED_LONGEST: Final = 64


class AddressError(ValueError):
    """Not an address or a network."""


@dataclass(frozen=True, slots=True)
class Ip:
    """An address of version 4 or 6. It is never a mapped address and never has a zone."""

    address: IPv4Address | IPv6Address

    def __str__(self) -> str:
        return str(self.address)

    @property
    def bits(self) -> int:
        """32 or 128."""
        return self.address.max_prefixlen


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with the length of its prefix; the bits beyond it need not be zero."""

    ip: Ip
    prefix_length: int

    def __str__(self) -> str:
        return f"{self.ip}/{self.prefix_length}"

    def masked(self) -> "Cidr":
        """The same network with all bits beyond the prefix set to zero."""
        return Cidr(_masked(self.ip, self.prefix_length), self.prefix_length)

    def contains_ip(self, other: Ip) -> bool:
        """Whether an address is in the network."""
        return self.ip.bits == other.bits and _masked(other, self.prefix_length) == _masked(
            self.ip, self.prefix_length
        )

    def contains(self, other: "Cidr") -> bool:
        """Whether all of another network is in the network."""
        return self.prefix_length <= other.prefix_length and self.contains_ip(other.ip)


@lru_cache(maxsize=1024)
def parse_ip(text: str) -> Ip:
    """The address in ``text``.

    Raises:
        AddressError: it is not an address, has a zone, or is an IPv4 address mapped into IPv6.
    """
    shown = text[:_DOCUMENTED_LONGEST]
    if not text.isascii() or "%" in text or len(text) > _DOCUMENTED_LONGEST:
        raise AddressError(f"{shown!r} is not an IP address without a zone")
    try:
        address = ip_address(text)
    except (AddressValueError, ValueError):
        raise AddressError(f"IP Address {shown!r} parse error") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise AddressError(f"IPv4-mapped IPv6 address {shown!r} is not allowed")
    return Ip(address)


@lru_cache(maxsize=1024)
def parse_cidr(text: str) -> Cidr:
    """The network in ``text``.

    Raises:
        AddressError: it is not a network.
    """
    address, slash, length = text.rpartition("/")
    is_number = length.isascii() and length.isdigit() and len(length) <= 3
    if not slash or not is_number or (len(length) > 1 and length.startswith("0")):
        raise AddressError(f"network address {text[:_DOCUMENTED_LONGEST]!r} parse error")
    ip = parse_ip(address)
    if int(length) > ip.bits:
        raise AddressError(f"prefix length {length} is out of range")
    return Cidr(ip, int(length))


def is_global_unicast(ip: Ip) -> bool:
    """As Go defines it: all but unspecified, loopback, multicast, link-local, 255.255.255.255."""
    address = ip.address
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == IPv4Address("255.255.255.255")
    )


def is_link_local_multicast(ip: Ip) -> bool:
    """Whether it is in 224.0.0.0/24, or in ff02::/16 with any flags."""
    packed = ip.address.packed
    if len(packed) == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _masked(ip: Ip, prefix_length: int) -> Ip:
    host = ip.bits - prefix_length
    return Ip(type(ip.address)(int(ip.address) >> host << host))
