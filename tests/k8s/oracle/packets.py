# SPDX-License-Identifier: Apache-2.0
"""The first packet of a flow as bytes, with a number in it, and its traces on a link.

No translation changes the number: TCP's sequence number, SCTP's initiate tag, the payload of UDP. So an
arrival, an ICMP error and a RST identify their packet, whatever addresses and ports they have.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ruleset.model import Endpoint, Protocol
from tests.cases.services.sctp import crc32c

TRAFFIC_CLASS = 0x04
"""The mark of every crafted packet, so that no stack replies to it."""

_NUMBERS = {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}
_PROTOCOLS = {number: protocol for protocol, number in _NUMBERS.items()}
_ICMP, _ICMP6 = 1, 58
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_TCP = struct.Struct("!HHIIBBHHH")
_UDP = struct.Struct("!HHHHI")
_SYN, _RST = 0x02, 0x04
_PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}  # RFC 792; RFC 4443 3.1


@dataclass(frozen=True, slots=True)
class Arrived:
    """A packet came to `endpoint`; `source` is the sender's address as it was seen there."""

    number: int
    endpoint: Endpoint
    source: str


@dataclass(frozen=True, slots=True)
class PacketRefused:
    """A RST or an ICMP error came back; `is_port` False: another error than port unreachable."""

    number: int
    is_port: bool = True


@dataclass(frozen=True, slots=True)
class Template:
    """The packet of a flow without its source port and number."""

    protocol: Protocol
    head: bytes
    port: int
    ones_sum: int

    def packet(self, source_port: int, number: int) -> bytes:
        """The whole packet. The kernel fills in IPv4's own checksum."""
        if self.protocol is Protocol.SCTP:
            return self.head + _sctp(source_port, self.port, number)
        total = self.ones_sum + source_port + (number >> 16) + (number & 0xFFFF)
        total = (total & 0xFFFF) + (total >> 16)
        checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        if self.protocol is Protocol.TCP:
            body = _TCP.pack(source_port, self.port, number, 0, 5 << 4, _SYN, 65535, checksum, 0)
        else:
            body = _UDP.pack(source_port, self.port, _UDP.size, checksum or 0xFFFF, number)
        return self.head + body


def template(source: str, protocol: Protocol, destination: str, port: int) -> Template:
    """The packets of one kind of flow."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    one, other = socket.inet_pton(family, source), socket.inet_pton(family, destination)
    number = _NUMBERS[protocol]
    length = {Protocol.TCP: _TCP.size, Protocol.UDP: _UDP.size}.get(protocol, 32)
    if family == socket.AF_INET6:
        head = _IPV6.pack(6 << 28 | TRAFFIC_CLASS << 20, length, number, 64, one, other)
    else:
        head = _IPV4.pack(4 << 4 | 5, TRAFFIC_CLASS, 20 + length, 0, 0x4000, 64, number, 0, one, other)
    if protocol is Protocol.TCP:
        fixed = _TCP.pack(0, port, 0, 0, 5 << 4, _SYN, 65535, 0, 0)
    else:
        fixed = _UDP.pack(0, port, length, 0, 0)
    pseudo = one + other + struct.pack("!HH", length, number)
    return Template(protocol, head, port, _ones(pseudo + fixed))


def read(packet: bytes) -> Arrived | PacketRefused | None:
    """The meaning of a packet on a link; None if it is not ours."""
    split = _split(packet)
    if split is None:
        return None
    version, number, source, destination, body = split
    if number in (_ICMP, _ICMP6):
        return _error(version, number, body)
    protocol = _PROTOCOLS.get(number)
    if protocol is None or len(body) < 12:
        return None
    if protocol is Protocol.TCP and body[13] & _RST:
        return PacketRefused((int.from_bytes(body[8:12]) - 1) & 0xFFFFFFFF)
    found = _number(protocol, body)
    if found is None:
        return None
    return Arrived(found, Endpoint(_text(destination), int.from_bytes(body[2:4])), _text(source))


def _ones(data: bytes) -> int:
    return sum(word for (word,) in _words(data))


def _words(data: bytes) -> Iterator[tuple[int]]:
    found: Iterator[tuple[int]] = struct.iter_unpack("!H", data)
    return found


def _sctp(source_port: int, port: int, number: int) -> bytes:
    """An INIT (RFC 9260 3.3.2) with `number` as its tag, which must not be 0."""
    chunk = struct.pack("!BBHIIHHI", 1, 0, 20, number, 65536, 1, 1, 1)
    before = struct.pack("!HHI", source_port, port, 0)
    return before + struct.pack("<I", crc32c(before + bytes(4) + chunk)) + chunk


def _split(packet: bytes) -> tuple[int, int, bytes, bytes, bytes] | None:
    """Version, protocol, source, destination and what follows."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        size = (packet[0] & 15) * 4
        return 4, packet[9], packet[12:16], packet[16:20], packet[size:]
    if version == 6 and len(packet) >= 40:
        return 6, packet[6], packet[8:24], packet[24:40], packet[40:]
    return None


def _error(version: int, number: int, body: bytes) -> PacketRefused | None:
    """An ICMP error about a packet of ours; None for another ICMP message."""
    unreachable, port = _PORT_UNREACHABLE[version]
    if len(body) < 8 or body[0] != unreachable or (number == _ICMP6) != (version == 6):
        return None
    inner = _split(body[8:])
    protocol = _PROTOCOLS.get(inner[1]) if inner is not None else None
    if inner is None or protocol is None:
        return None
    found = _number(protocol, inner[4])
    return None if found is None else PacketRefused(found, is_port=body[1] == port)


def _number(protocol: Protocol, body: bytes) -> int | None:
    match protocol:
        case Protocol.TCP:
            return int.from_bytes(body[4:8])
        case Protocol.UDP:
            return int.from_bytes(body[8:12]) if len(body) >= 12 else None
        case Protocol.SCTP:
            return int.from_bytes(body[16:20]) if len(body) >= 20 and body[12] == 1 else None


@lru_cache(maxsize=1 << 14)
def _text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET6 if len(address) == 16 else socket.AF_INET, address)
