# SPDX-License-Identifier: Apache-2.0
"""Packets and traces as values."""

import pytest

from ruleset.model import Endpoint, Family, Protocol
from ruletrace.packet import Outcome, Packet, PacketVerdict, Trace

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)


def test_a_packet() -> None:
    assert str(PACKET) == "tcp 10.0.0.2 -> 172.30.0.41:80"
    assert PACKET.family is Family.IPV4
    assert str(Packet("fd00::2", Protocol.UDP, "fd00::41", 53)) == "udp fd00::2 -> [fd00::41]:53"
    assert PACKET.rewritten(Endpoint("10.0.0.3", 8080)) == Packet(
        "10.0.0.2", Protocol.TCP, "10.0.0.3", 8080, is_rewritten=True
    )


@pytest.mark.parametrize(
    ("destination", "wanted"), [("10.0.0.2", True), ("127.0.0.9", True), ("10.0.0.3", False)]
)
def test_packets_to_oneself(destination: str, wanted: bool) -> None:
    assert Packet("10.0.0.2", Protocol.TCP, destination, 80).is_to_itself is wanted


@pytest.mark.parametrize(("destination", "port"), [("fd00::1", 80), ("10.0.0.3", 0), ("x", 80)])
def test_packets_that_cannot_be(destination: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"family|port|address"):
        Packet("10.0.0.2", Protocol.TCP, destination, port)


def test_a_verdict_has_endpoints_first_in_the_order_of_their_text() -> None:
    outcomes: frozenset[Outcome] = frozenset(
        {PacketVerdict.PASS, Endpoint("10.1.1.1", 11), Endpoint("10.1.1.11", 11), PacketVerdict.REJECT}
    )
    traced = Trace(outcomes, ())
    assert traced.verdict == "10.1.1.11:11, 10.1.1.1:11, reject, pass"
    assert traced.endpoints == (Endpoint("10.1.1.11", 11), Endpoint("10.1.1.1", 11))
