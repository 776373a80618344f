# SPDX-License-Identifier: Apache-2.0
import pytest

from kubeproxy_ext.compute.rules_probe import RulesProbe, with_rules_probe
from ruleset.document import parse
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.names import Backend
from ruleset.render.iptables import render as render_iptables
from ruleset.render.nft import render as render_nft
from ruletrace.iptables import trace as trace_iptables
from ruletrace.nft import trace as trace_nft
from ruletrace.packet import Packet

PROBE = RulesProbe("192.0.2.61", "2001:db8::61", 10561)
TARGET = EndpointSet("a/web", Protocol.TCP, False, (Endpoint("10.1.0.5", 8080),))
WEB = ServiceRules("a/web", (Frontend("10.96.0.7", 80, Protocol.TCP, "a/web", TARGET),))
RULES = GuestRules(Family.IPV4, (WEB,), ("10.96.0.0/16",))


def test_probe_is_added_in_sorted_order() -> None:
    found = with_rules_probe(RULES, PROBE)
    assert [each.service for each in found.services] == ["-/rules-probe", "a/web"]
    assert found.services[1] is WEB
    assert found.service_cidrs == RULES.service_cidrs


@pytest.mark.parametrize(
    ("rules", "probe"),
    [
        (RULES, None),
        (RULES, RulesProbe(None, "2001:db8::61", 10561)),
        (RULES, RulesProbe("10.96.0.7", None, 80)),
    ],
)
def test_probe_yields_to_a_service_with_its_address(rules: GuestRules, probe: RulesProbe | None) -> None:
    assert with_rules_probe(rules, probe) is rules


def test_guest_without_services_has_the_probe() -> None:
    assert [each.service for each in with_rules_probe(GuestRules(Family.IPV4, ()), PROBE).services] == [
        "-/rules-probe"
    ]


@pytest.mark.parametrize(
    ("family", "ip", "to"),
    [(Family.IPV4, "192.0.2.61", "127.0.0.1"), (Family.IPV6, "2001:db8::61", "::1")],
)
def test_both_backends_lead_the_probe_to_the_loopback(family: Family, ip: str, to: str) -> None:
    rules = with_rules_probe(GuestRules(family, ()), PROBE)
    source = "10.1.0.9" if family is Family.IPV4 else "fd00::9"
    packet = Packet(source, Protocol.TCP, ip, 10561)
    for render, trace, backend in (
        (render_iptables, trace_iptables, Backend.IPTABLES),
        (render_nft, trace_nft, Backend.NFT),
    ):
        document = render(rules)
        assert parse(document.text(), family, backend) == document
        assert trace(document, packet).outcomes == frozenset({Endpoint(to, 10561)})
