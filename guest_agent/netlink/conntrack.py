# SPDX-License-Identifier: Apache-2.0
"""Decodes conntrack entries, and matches them with the flows to flush."""

import enum
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from bridge_api.messages import Flow
from guest_agent.netlink.nfnetlink import NetlinkFormatError, attribute, attributes
from ruleset.model import Endpoint

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}

_IPS_SEEN_REPLY = 1 << 1


class _Ct(enum.IntEnum):
    """`enum ctattr_type`, and below it the two levels of a tuple."""

    TUPLE_ORIG = 1
    TUPLE_REPLY = 2
    STATUS = 3
    ID = 12
    ZONE = 18


_TUPLE_IP, _TUPLE_PROTO, _TUPLE_ZONE = 1, 2, 3
_IP_V4_SRC, _IP_V4_DST, _IP_V6_SRC, _IP_V6_DST = 1, 2, 3, 4
_PROTO_NUM, _PROTO_SRC_PORT, _PROTO_DST_PORT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ConntrackEntry:
    """One entry: its original destination, and the source of its replies.

    `key` has the attributes that name this entry in a deletion.
    """

    protocol: int
    destination: Endpoint
    reply_source: Endpoint
    has_reply: bool
    key: bytes


def read_entry(payload: bytes) -> ConntrackEntry | None:
    """Decode one entry of a dump; None for one without ports, which no flow matches.

    Raises `NetlinkFormatError`.
    """
    found = attributes(payload)
    original, reply = found.get(_Ct.TUPLE_ORIG), found.get(_Ct.TUPLE_REPLY)
    if original is None or reply is None:
        raise NetlinkFormatError("an entry lacks one of its tuples")
    to, back = _read_tuple(original), _read_tuple(reply)
    if to is None or back is None:
        return None
    key = attribute(_Ct.TUPLE_ORIG, original, is_nested=True)
    if _Ct.ZONE in found:
        key += attribute(_Ct.ZONE, found[_Ct.ZONE])
    if _Ct.ID in found:
        # Spares a successor that was created between dump and deletion.
        key += attribute(_Ct.ID, found[_Ct.ID])
    status = int.from_bytes(found.get(_Ct.STATUS, b""))
    return ConntrackEntry(to[0], to[2], back[1], bool(status & _IPS_SEEN_REPLY), key)


def _read_tuple(data: bytes) -> tuple[int, Endpoint, Endpoint] | None:
    """Protocol, source and destination."""
    levels = attributes(data)
    address, proto = attributes(levels.get(_TUPLE_IP, b"")), attributes(levels.get(_TUPLE_PROTO, b""))
    source = address.get(_IP_V4_SRC) or address.get(_IP_V6_SRC)
    destination = address.get(_IP_V4_DST) or address.get(_IP_V6_DST)
    ports = proto.get(_PROTO_SRC_PORT), proto.get(_PROTO_DST_PORT)
    if not source or not destination or None in ports or len(source) != len(destination):
        return None
    if len(source) not in (4, 16):
        raise NetlinkFormatError("an address has neither 4 nor 16 bytes")
    number, source_port, destination_port = (
        int.from_bytes(value or b"") for value in (proto.get(_PROTO_NUM), *ports)
    )
    return number, Endpoint(_text(source), source_port), Endpoint(_text(destination), destination_port)


def _text(address: bytes) -> str:
    return str(ipaddress.ip_address(address))


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """A `Flow` prepared for matching: addresses are canonical."""

    protocol: int
    destination: Endpoint
    reply_source: Endpoint | None
    reply_port: int
    is_never_translated: bool
    keep: frozenset[str]

    @classmethod
    def of(cls, flow: Flow) -> "FlowFilter":
        """Raises `ValueError` for an invalid flow."""
        if flow.protocol not in PROTOCOLS:
            raise ValueError(f"{flow.protocol!r} is not one of {', '.join(PROTOCOLS)}")
        return cls(
            PROTOCOLS[flow.protocol],
            Endpoint(str(ipaddress.ip_address(flow.destination)), flow.port),
            Endpoint(str(ipaddress.ip_address(flow.reply_source)), 0) if flow.reply_source else None,
            flow.reply_port,
            flow.never_translated,
            frozenset(_endpoint(text) for text in flow.keep_replies_from),
        )

    def matches(self, entry: ConntrackEntry) -> bool:
        """Whether the flow deletes this entry."""
        if entry.protocol != self.protocol or entry.destination.ip != self.destination.ip:
            return False
        if self.destination.port and entry.destination.port != self.destination.port:
            return False
        if self.reply_source is not None and entry.reply_source.ip != self.reply_source.ip:
            return False
        if self.reply_port and entry.reply_source.port != self.reply_port:
            return False
        if self.is_never_translated and (entry.has_reply or entry.reply_source != entry.destination):
            return False
        return str(entry.reply_source) not in self.keep


def _endpoint(text: str) -> str:
    """The canonical text of `ip:port`, IPv6 in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not ip:port")
    return str(Endpoint(str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), int(port)))


def flows_to(destinations: Iterable[Endpoint]) -> tuple[Flow, ...]:
    """All UDP flows to these destinations, which have no rule any more; sorted."""
    return tuple(Flow("udp", each.ip, each.port) for each in sorted(destinations, key=str))


class FlowFilters:
    """Many flows: matching an entry costs one look-up, not one comparison for each flow."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        """Raises `ValueError` for an invalid flow."""
        self._by_destination: dict[tuple[int, str], list[FlowFilter]] = {}
        for flow in flows:
            each = FlowFilter.of(flow)
            self._by_destination.setdefault((each.protocol, each.destination.ip), []).append(each)

    def __bool__(self) -> bool:
        return bool(self._by_destination)

    def match(self, entry: ConntrackEntry) -> bool:
        """Whether any of the flows deletes the entry."""
        filters = self._by_destination.get((entry.protocol, entry.destination.ip), ())
        return any(each.matches(entry) for each in filters)
