# SPDX-License-Identifier: Apache-2.0
"""Which entries a flow matches, and entries as netlink encodes them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge_api.messages import Flow
from guest_agent.netlink.conntrack import ConntrackEntry, FlowFilters, read_entry
from guest_agent.netlink.nfnetlink import NetlinkFormatError, attribute
from ruleset.model import Endpoint

UDP, TCP = 17, 6
SERVICE, POD, OTHER = Endpoint("10.96.0.10", 53), Endpoint("10.1.0.5", 5353), Endpoint("10.1.0.6", 5353)


def entry(
    protocol: int = UDP, to: Endpoint = SERVICE, back: Endpoint = POD, *, has_reply: bool = True
) -> ConntrackEntry:
    return ConntrackEntry(protocol, to, back, has_reply, b"")


@pytest.mark.parametrize(
    ("flow", "one", "is_meant"),
    [
        (Flow("udp", "10.96.0.10", 53), entry(), True),
        (Flow("udp", "10.96.0.10"), entry(), True),
        (Flow("udp", "10.96.0.10", 54), entry(), False),
        (Flow("udp", "10.96.0.11", 53), entry(), False),
        (Flow("tcp", "10.96.0.10", 53), entry(), False),
        (Flow("tcp", "10.96.0.10", 53), entry(TCP), True),
        (Flow("udp", "10.96.0.10", 53, reply_source="10.1.0.5"), entry(), True),
        (Flow("udp", "10.96.0.10", 53, reply_source="10.1.0.6"), entry(), False),
        (Flow("udp", "10.96.0.10", 53, reply_source="10.1.0.5", reply_port=5353), entry(), True),
        (Flow("udp", "10.96.0.10", 53, reply_source="10.1.0.5", reply_port=1), entry(), False),
        (Flow("udp", "10.96.0.10", 53, reply_port=5353), entry(), True),
        # Never translated: unreplied, and its reply source is the Service's address.
        (
            Flow("tcp", "10.96.0.10", 53, never_translated=True),
            entry(TCP, back=SERVICE, has_reply=False),
            True,
        ),
        (Flow("tcp", "10.96.0.10", 53, never_translated=True), entry(TCP, back=SERVICE), False),
        (Flow("tcp", "10.96.0.10", 53, never_translated=True), entry(TCP, has_reply=False), False),
        # Entries of serving endpoints are kept.
        (Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.5:5353",)), entry(), False),
        (Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.5:5353",)), entry(back=OTHER), True),
        (Flow("udp", "10.96.0.10", 53, keep_replies_from=("10.1.0.5:1",)), entry(), True),
    ],
)
def test_a_flow_matches_by_each_field(flow: Flow, one: ConntrackEntry, is_meant: bool) -> None:
    assert FlowFilters([flow]).match(one) is is_meant


def test_addresses_match_in_any_notation() -> None:
    flow = Flow("udp", "FD00:0::a", 53, keep_replies_from=("[FD00::0:1]:5353",))
    service = Endpoint("fd00::a", 53)
    assert not FlowFilters([flow]).match(entry(to=service, back=Endpoint("fd00::1", 5353)))
    assert FlowFilters([flow]).match(entry(to=service, back=Endpoint("fd00::2", 5353)))


def test_one_matching_flow_is_enough() -> None:
    filters = FlowFilters([Flow("udp", "10.96.0.10", 1), Flow("udp", "10.96.0.10", 53)])
    assert filters
    assert filters.match(entry())
    assert not FlowFilters([])


@pytest.mark.parametrize(
    "flow",
    [
        Flow("icmp", "10.0.0.1"),
        Flow("udp", "host"),
        Flow("udp", "10.0.0.1", reply_source="x"),
        Flow("udp", "10.0.0.1", keep_replies_from=("10.0.0.1",)),
        Flow("udp", "10.0.0.1", keep_replies_from=("10.0.0.1:-1",)),
    ],
)
def test_an_invalid_flow_is_an_error(flow: Flow) -> None:
    with pytest.raises(ValueError, match=r"."):
        FlowFilters([flow])


def tuple_of(source: Endpoint, destination: Endpoint, protocol: int) -> bytes:
    packed = [ipaddress.ip_address(each.ip).packed for each in (source, destination)]
    first = 1 if len(packed[0]) == 4 else 3
    address = attribute(first, packed[0]) + attribute(first + 1, packed[1])
    ports = [each.port.to_bytes(2) for each in (source, destination)]
    proto = attribute(1, bytes((protocol,))) + attribute(2, ports[0]) + attribute(3, ports[1])
    return attribute(1, address, is_nested=True) + attribute(2, proto, is_nested=True)


@pytest.mark.parametrize(
    ("client", "service", "pod"),
    [
        (Endpoint("10.1.0.1", 40_000), SERVICE, POD),
        (Endpoint("fd00::1", 40_000), Endpoint("fd01::a", 53), Endpoint("fd00::2", 5353)),
    ],
)
@pytest.mark.parametrize("status", [0b1000, 0b1010])
def test_an_entry_is_decoded(client: Endpoint, service: Endpoint, pod: Endpoint, status: int) -> None:
    original = attribute(1, tuple_of(client, service, UDP), is_nested=True)
    reply = attribute(2, tuple_of(pod, client, UDP), is_nested=True)
    name = attribute(12, b"\1\2\3\4")
    payload = original + reply + attribute(3, status.to_bytes(4)) + name
    assert read_entry(payload) == ConntrackEntry(UDP, service, pod, bool(status & 2), original + name)


def test_an_entry_without_ports_is_skipped() -> None:
    address = attribute(1, attribute(1, b"\x0a\0\0\1") + attribute(2, b"\x0a\0\0\2"), is_nested=True)
    ping = address + attribute(2, attribute(1, b"\1"), is_nested=True)
    assert read_entry(attribute(1, ping) + attribute(2, ping)) is None


@given(st.binary(max_size=200))
def test_any_entry_is_decoded_or_an_error(data: bytes) -> None:
    try:
        read_entry(data)
    except NetlinkFormatError:
        return
