# SPDX-License-Identifier: Apache-2.0
"""Packets through models of rules, and any model's packets through both of its documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruleset.model import (
    Endpoint,
    EndpointSet,
    Family,
    Frontend,
    GuestRules,
    NoBackendAction,
    Protocol,
    ServiceRules,
)
from ruleset.render.iptables import render as render_iptables
from ruleset.render.nft import render as render_nft
from ruletrace import iptables, nft
from ruletrace.model_trace import trace_model
from ruletrace.packet import Packet
from tests.cases.services.consistency import problems

A, B = Endpoint("10.1.0.3", 8080), Endpoint("10.1.0.4", 8080)
RULES = GuestRules(
    Family.IPV4,
    (
        ServiceRules(
            "a/s",
            (
                Frontend(
                    "172.30.0.41",
                    80,
                    Protocol.TCP,
                    "a/s:p",
                    EndpointSet("a/s:p", Protocol.TCP, False, (A, B), 60),
                ),
                Frontend(
                    "172.30.0.41", 53, Protocol.UDP, "a/s:d", EndpointSet("a/s:d", Protocol.UDP, True, (A,))
                ),
                Frontend("1.2.3.4", 80, Protocol.TCP, "a/s:p", NoBackendAction.DROP),
                Frontend("1.2.3.5", 80, Protocol.TCP, "a/s:p", NoBackendAction.REJECT),
            ),
        ),
    ),
    ("172.30.0.0/16",),
)


@pytest.mark.parametrize(
    ("protocol", "destination", "port", "summary", "steps"),
    [
        (
            *(Protocol.TCP, "172.30.0.41", 80, "10.1.0.3:8080, 10.1.0.4:8080"),
            (
                "tcp 172.30.0.41:80 is Service port a/s:p",
                "one of 2 endpoints selected for this node: 10.1.0.3:8080, 10.1.0.4:8080",
                "ClientIP affinity keeps a client on its endpoint for 60 s",
            ),
        ),
        (
            *(Protocol.UDP, "172.30.0.41", 53, "10.1.0.3:8080"),
            (
                "udp 172.30.0.41:53 is Service port a/s:d",
                "the only endpoint on this node: 10.1.0.3:8080",
            ),
        ),
        (
            *(Protocol.TCP, "1.2.3.4", 80, "drop"),
            (
                "tcp 1.2.3.4:80 is Service port a/s:p",
                "its traffic policy or source ranges leave this guest no endpoint: the packet is dropped",
            ),
        ),
        (
            *(Protocol.TCP, "1.2.3.5", 80, "reject"),
            (
                "tcp 1.2.3.5:80 is Service port a/s:p",
                "it has no endpoint: the packet is rejected, the sender fails at once",
            ),
        ),
        (
            *(Protocol.TCP, "172.30.0.41", 53, "reject"),
            (
                "this guest has no Service port at tcp 172.30.0.41:53",
                "172.30.0.41 is in the service range 172.30.0.0/16: the packet is rejected",
            ),
        ),
        (
            *(Protocol.TCP, "9.9.9.9", 80, "pass"),
            ("this guest has no Service port at tcp 9.9.9.9:80: the packet passes untranslated",),
        ),
    ],
)
def test_model_explains_a_packets_endpoint(
    protocol: Protocol, destination: str, port: int, summary: str, steps: tuple[str, ...]
) -> None:
    traced = trace_model(RULES, Packet("10.1.0.2", protocol, destination, port))
    assert (traced.summary, traced.steps) == (summary, steps)


def test_packet_of_the_other_family_passes() -> None:
    assert trace_model(RULES, Packet("fd00::2", Protocol.TCP, "fd00::41", 80)).summary == "pass"


_ADDRESSES = {
    Family.IPV4: (
        *("172.30.0.1", "172.30.0.2", "172.30.9.9", "1.2.3.4", "10.1.0.2", "127.0.0.1"),
        *("9.9.9.9", "10.1.0.3"),
    ),
    Family.IPV6: (
        *("fd00:172:30::1", "fd00:172:30::2", "fd00:172:30::99", "2001:db8::4", "fd00:10::2", "::1"),
        *("2001:db8::9", "fd00:10::3"),
    ),
}
_POD = {Family.IPV4: "10.1.0.2", Family.IPV6: "fd00:10::2"}
_RANGE = {Family.IPV4: "172.30.0.0/16", Family.IPV6: "fd00:172:30::/112"}
_PORTS = (53, 80, 8080)


@st.composite
def models(draw: st.DrawFn) -> GuestRules:
    """Models with some frontends of each kind; endpoints may lie in the service range."""
    family = draw(st.sampled_from(Family))
    places = st.tuples(
        st.sampled_from(_ADDRESSES[family]), st.sampled_from(_PORTS), st.sampled_from(Protocol)
    )
    endpoints = st.lists(
        st.builds(Endpoint, st.sampled_from(_ADDRESSES[family]), st.sampled_from(_PORTS)),
        min_size=1,
        max_size=5,
        unique=True,
    )
    frontends = []
    for number, (ip, port, protocol) in enumerate(draw(st.lists(places, max_size=8, unique=True))):
        name = f"ns/s:p{number}"
        ends = tuple(sorted(draw(endpoints), key=str))
        target = EndpointSet(name, protocol, draw(st.booleans()), ends, draw(st.sampled_from((None, 10800))))
        kinds: tuple[EndpointSet | NoBackendAction, ...] = (
            target,
            target,
            NoBackendAction.REJECT,
            NoBackendAction.DROP,
        )
        to = draw(st.sampled_from(kinds))
        frontends.append(Frontend(ip, port, protocol, name, to))
    cidrs = draw(st.sampled_from(((), (_RANGE[family],))))
    return GuestRules(family, (ServiceRules("ns/s", tuple(frontends)),), cidrs)


@given(models())
def test_both_documents_trace_as_their_model(rules: GuestRules) -> None:
    """With the same chances, to the ten decimals of iptables' weights."""
    iptables_document, nft_document = render_iptables(rules), render_nft(rules)
    assert problems(iptables_document.text()) == ()
    for ip in _ADDRESSES[rules.family]:
        for port in (*_PORTS, 81):
            for protocol in Protocol:
                packet = Packet(_POD[rules.family], protocol, ip, port)
                expected = {o: round(c, 6) for o, c in trace_model(rules, packet).chances.items()}
                for traced in (iptables.trace(iptables_document, packet), nft.trace(nft_document, packet)):
                    assert {o: round(c, 6) for o, c in traced.chances.items()} == expected, packet
