# SPDX-License-Identifier: Apache-2.0
"""DNS messages (RFC 1035): encodes a question, decodes its answer, refuses anything malformed."""

import enum
import ipaddress
import struct
from dataclasses import dataclass

MAX_NAME_BYTES = 255
MAX_LABEL_BYTES = 63
# A name of 255 bytes has at most 127 labels; each pointer leads to an earlier offset.
_MAX_POINTERS = 127
_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")

_RECURSION_DESIRED = 0x0100
_RESPONSE = 0x8000
_TRUNCATED = 0x0200
_INTERNET = 1


class RecordType(enum.IntEnum):
    """The record types that can be queried."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    TXT = 16
    AAAA = 28
    SRV = 33


class Rcode(enum.IntEnum):
    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5


class BadName(ValueError):  # noqa: N818 - names the state
    """The text is not a name that can be queried."""


class Malformed(ValueError):  # noqa: N818 - names the state
    """The bytes are not an answer to the question."""


@dataclass(frozen=True, slots=True)
class DnsRecord:
    name: str
    type: int
    ttl_s: int
    value: str


@dataclass(frozen=True, slots=True)
class DnsAnswer:
    rcode: int
    is_truncated: bool
    records: tuple[DnsRecord, ...]

    @property
    def code(self) -> str:
        """The response code's name, as `NXDOMAIN`."""
        return Rcode(self.rcode).name if self.rcode in set(Rcode) else f"RCODE{self.rcode}"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query to one server: its answer, or why it has none, and its duration."""

    name: str
    server: str
    answer: DnsAnswer | None
    problem: str
    seconds: float


def question(name: str, type_: RecordType, number: int) -> bytes:
    """A recursive question; its answer has the same `number`. Raises BadName."""
    header = _HEADER.pack(number, _RECURSION_DESIRED, 1, 0, 0, 0)
    return header + _encoded(name) + struct.pack("!HH", type_, _INTERNET)


def decode(data: bytes, query: bytes) -> DnsAnswer:
    """Read the answer to `query`. Raises Malformed."""
    try:
        return _decode(data, query)
    except (struct.error, IndexError):
        raise Malformed("the answer is cut short") from None


def reverse_name(address: str) -> str:
    """The name of an address's PTR record. Raises ValueError."""
    return f"{ipaddress.ip_address(address).reverse_pointer}."


def candidates(name: str, searches: tuple[str, ...], ndots: int) -> tuple[str, ...]:
    """The names that a resolver tries for `name`, in order, without final dots (resolv.conf(5)).

    A name with a final dot is tried alone. One with `ndots` dots or more is tried before the search
    list, any other after it.
    """
    if name.endswith("."):
        return (name.removesuffix("."),)
    through = [f"{name}.{search.strip('.')}".rstrip(".") for search in searches]
    found = [name, *through] if name.count(".") >= ndots else [*through, name]
    return tuple(dict.fromkeys(found))


def _encoded(name: str) -> bytes:
    labels = [label.encode("idna" if not label.isascii() else "ascii") for label in _labels(name)]
    if any(not 0 < len(label) <= MAX_LABEL_BYTES for label in labels):
        raise BadName(f"{name!r}: a label has 1 to {MAX_LABEL_BYTES} characters")
    found = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    if len(found) > MAX_NAME_BYTES:
        raise BadName(f"{name!r} is longer than {MAX_NAME_BYTES} bytes")
    return found


def _labels(name: str) -> list[str]:
    bare = name.removesuffix(".")
    if not bare:
        raise BadName("the name is empty")
    return bare.split(".")


def _decode(data: bytes, query: bytes) -> DnsAnswer:
    number, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    if number != _HEADER.unpack_from(query)[0] or not flags & _RESPONSE:
        raise Malformed("not an answer to this question")
    at = _HEADER.size
    for _ in range(questions):
        at = _name(data, at)[1] + 4
    records = []
    is_truncated = bool(flags & _TRUNCATED)
    for _ in range(0 if is_truncated else answers):
        name, at = _name(data, at)
        type_, _, ttl_s, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise Malformed("a record is longer than the message")
        records.append(DnsRecord(name, type_, ttl_s, _value(data, at, length, type_)))
        at += length
    return DnsAnswer(flags & 0xF, is_truncated, tuple(records))


def _name(data: bytes, at: int) -> tuple[str, int]:
    """The name at an offset, and the offset behind it."""
    labels: list[str] = []
    end, pointers, size = 0, 0, 0
    while True:
        length = data[at]
        if length & 0xC0 == 0xC0:
            target = (length & 0x3F) << 8 | data[at + 1]
            end = end or at + 2
            pointers += 1
            if target >= at or pointers > _MAX_POINTERS:
                raise Malformed("a name with a loop of pointers")
            at = target
            continue
        if length & 0xC0:
            raise Malformed("a label of an unknown kind")
        at += 1
        if not length:
            return ".".join(labels), end or at
        size += length + 1
        if size > MAX_NAME_BYTES or at + length > len(data):
            raise Malformed("a name that is too long")
        labels.append(data[at : at + length].decode("ascii", "backslashreplace"))
        at += length


def _value(data: bytes, at: int, length: int, type_: int) -> str:
    raw = data[at : at + length]
    match type_:
        case RecordType.A if length == 4:
            return str(ipaddress.IPv4Address(raw))
        case RecordType.AAAA if length == 16:
            return str(ipaddress.IPv6Address(raw))
        case RecordType.NS | RecordType.CNAME | RecordType.PTR:
            return _name(data, at)[0]
        case RecordType.SRV if length > 6:
            priority, weight, port = struct.unpack_from("!3H", data, at)
            return f"{priority} {weight} {port} {_name(data, at + 6)[0]}"
        case RecordType.TXT if length:
            return raw[1:].decode("ascii", "backslashreplace")
        case _:
            return raw.hex()
