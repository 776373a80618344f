# SPDX-License-Identifier: Apache-2.0
"""Questions to DNS servers and their answers, as values; dnspython knows their bytes (RFC 1035)."""

import enum
import ipaddress
from dataclasses import dataclass

import dns.exception
import dns.flags
import dns.message
import dns.rcode


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


class BadName(ValueError):  # noqa: N818 - names the state
    """The text is not a name that can be queried."""


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
        text = dns.rcode.to_text(dns.rcode.Rcode.make(self.rcode))
        return f"RCODE{text}" if text.isdigit() else text


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query to one server: its answer, or why it has none, and its duration."""

    name: str
    server: str
    answer: DnsAnswer | None
    problem: str
    seconds: float


def question(name: str, type_: RecordType, number: int) -> dns.message.QueryMessage:
    """A recursive question; its answer has the same `number`. Raises BadName."""
    if not name.removesuffix("."):
        raise BadName("the name is empty")
    try:
        return dns.message.make_query(name, type_.name, id=number)
    except (dns.exception.DNSException, UnicodeError) as error:
        raise BadName(f"{name!r}: {error}") from None


def answer(message: dns.message.Message) -> DnsAnswer:
    """What a response says; nothing of one that is truncated."""
    is_truncated = bool(message.flags & dns.flags.TC)
    records = [
        DnsRecord(
            rrset.name.to_text(omit_final_dot=True), int(rrset.rdtype), rrset.ttl, _value(rdata.to_text())
        )
        for rrset in (() if is_truncated else message.answer)
        for rdata in rrset
    ]
    return DnsAnswer(message.rcode(), is_truncated, tuple(records))


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


def _value(text: str) -> str:
    """As dig prints it; names without their final dot, as an operator writes them."""
    return text.removesuffix(".")
