# SPDX-License-Identifier: Apache-2.0
import pytest

from ruleset.model import Endpoint, Family, Protocol
from ruletrace.packet import Packet, PacketVerdict, Trace

PACKET = Packet("10.0.0.2", Protocol.TCP, "172.30.0.41", 80)


def test_packet_shows_protocol_source_and_destination() -> None:
    assert str(PACKET) == "tcp 10.0.0.2 -> 172.30.0.41:80"
    assert str(Packet("fd00::2", Protocol.UDP, "fd00::41", 53)) == "udp fd00::2 -> [fd00::41]:53"


def test_translated_packet_has_the_endpoint_as_destination() -> None:
    assert PACKET.family is Family.IPV4
    assert PACKET.translated(Endpoint("10.0.0.3", 8080)) == Packet(
        "10.0.0.2", Protocol.TCP, "10.0.0.3", 8080, is_translated=True
    )


@pytest.mark.parametrize(("destination", "port"), [("fd00::1", 80), ("10.0.0.3", 0), ("x", 80)])
def test_impossible_packet_is_refused(destination: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"family|port|address"):
        Packet("10.0.0.2", Protocol.TCP, destination, port)


def test_summary_sorts_endpoints_by_text_before_verdicts() -> None:
    ends = (Endpoint("10.1.1.1", 11), Endpoint("10.1.1.11", 11))
    trace = Trace(dict.fromkeys((PacketVerdict.PASS, *ends, PacketVerdict.REJECT), 0.25), ())
    assert trace.summary == "10.1.1.11:11, 10.1.1.1:11, reject, pass"
    assert trace.endpoints == (ends[1], ends[0])
    assert trace.verdicts == (PacketVerdict.REJECT, PacketVerdict.PASS)
