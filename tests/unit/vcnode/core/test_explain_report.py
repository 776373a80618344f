# SPDX-License-Identifier: Apache-2.0
"""The explanation of a packet, given what kubeproxy-ext, kata-bridge and the guest report."""

from dataclasses import replace

import pytest

from kubeproxy_ext.compute.rules_probe import RulesProbe, with_rules_probe
from ruleset.document import Document, make_ruleset
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
from ruleset.names import Backend, endpoint_set_chain
from ruleset.render.iptables import render as iptables
from ruleset.render.nft import render as nft
from ruletrace.packet import Packet
from vcnode.core.explain_report import (
    DesiredRules,
    Explanation,
    GuestIdentity,
    ReadBack,
    RulesState,
    as_json,
    explain,
    render,
)

SHOP = "vc-a-web/shop:http"
ENDPOINTS = EndpointSet(SHOP, Protocol.TCP, False, (Endpoint("10.0.0.21", 8080), Endpoint("10.0.0.22", 8080)))
FRONTENDS = (
    Frontend("10.96.0.11", 80, Protocol.TCP, SHOP, ENDPOINTS),
    Frontend("10.32.0.10", 80, Protocol.TCP, SHOP, ENDPOINTS),
)
RULES = GuestRules(Family.IPV4, (ServiceRules("vc-a-web/shop", FRONTENDS),), ("10.32.0.0/16", "10.96.0.0/16"))
OLD = GuestRules(Family.IPV4, (), ("10.32.0.0/16", "10.96.0.0/16"))


def digest(*documents: Document) -> str:
    return make_ruleset(1, documents).digest


NEW_TEXT, OLD_TEXT = iptables(RULES), iptables(OLD)
GUEST = GuestIdentity(
    "g1", "vc-a-web/front", "vc-a", "web/front", ("10.0.0.10",), "agent", digest=digest(NEW_TEXT)
)
DESIRED = DesiredRules(RULES, digest(NEW_TEXT), 7, namespaces={"vc-a-web": "web"})
APPLIED = ReadBack((NEW_TEXT,), (NEW_TEXT,))


def to(address: str, port: int = 80) -> Packet:
    return Packet("10.0.0.10", Protocol.TCP, address, port)


def test_packet_gets_the_expected_verdict_in_tenants_names() -> None:
    found = explain(GUEST, to("10.32.0.10"), DESIRED, APPLIED)
    assert (found.is_good, found.state) == (True, RulesState.CURRENT)
    chain, both = endpoint_set_chain(ENDPOINTS), "to 10.0.0.21:8080, 10.0.0.22:8080"
    assert render(found) == [
        "tcp 10.0.0.10 -> 10.32.0.10:80 from web/front of tenant vc-a",
        "-> goes to one of 10.0.0.21:8080, 10.0.0.22:8080, as expected",
        "",
        "guest     g1, vc-a-web/front in the super cluster, channel agent",
        "expected  10.0.0.21:8080, 10.0.0.22:8080",
        "          tcp 10.32.0.10:80 is Service port web/shop:http",
        "          one of 2 endpoints selected for this node: 10.0.0.21:8080, 10.0.0.22:8080",
        "actual    10.0.0.21:8080, 10.0.0.22:8080",
        '          nat OUTPUT 1 "-j VCN-SERVICES": jumps to VCN-SERVICES',
        f'          nat VCN-SERVICES 2 "-d 10.32.0.10/32 -p tcp -m tcp --dport 80 -j {chain}": jumps to '
        f"{chain}",
        f'          nat {chain} 1 "-p tcp -m statistic --mode random --probability 0.5000000000 -j DNAT'
        ' --to-destination 10.0.0.21:8080": 50 % of new connections: destination becomes 10.0.0.21:8080',
        f'          nat {chain} 2 "-p tcp -j DNAT --to-destination 10.0.0.22:8080":'
        " 50 % of new connections: destination becomes 10.0.0.22:8080",
        f'          {both}: filter OUTPUT 1 "-m conntrack --ctstate NEW -j VCN-SERVICES": jumps to '
        "VCN-SERVICES",
        f'          {both}: filter VCN-SERVICES 1 "-m conntrack --ctstate DNAT -j RETURN": returns to the'
        " calling chain",
        f"          {both}: filter OUTPUT: no rule decides, the packet continues",
        f"rules     current: generation 7, digest {digest(NEW_TEXT)[:12]}",
    ]


@pytest.mark.parametrize("backend", Backend)
def test_rules_of_both_backends_are_traced(backend: Backend) -> None:
    document = iptables(RULES) if backend is Backend.IPTABLES else nft(RULES)
    desired = replace(DESIRED, digest=digest(document))
    guest = replace(GUEST, digest=digest(document))
    assert explain(guest, to("10.96.0.11"), desired, ReadBack((document,), (document,))).is_good


def test_flushed_guest_has_drifted() -> None:
    found = explain(GUEST, to("10.32.0.10"), DESIRED, ReadBack((), (NEW_TEXT,)))
    assert (found.is_good, found.agrees, found.state) == (False, False, RulesState.DRIFTED)
    lines = render(found)
    assert lines[1] == (
        "-> passes untranslated; MISMATCH: by the model it goes to one of 10.0.0.21:8080, 10.0.0.22:8080"
    )
    assert "          the guest has none of our rules: the packet passes" in lines
    assert lines[-1].startswith("rules     drifted: changed inside the guest: missing filter/OUTPUT")


def test_drift_names_the_objects_that_differ() -> None:
    objects = dict(NEW_TEXT.objects)
    del objects["nat/VCN-SERVICES"]
    changed = replace(NEW_TEXT, objects={**objects, "filter/VCN-SERVICES": (), "nat/VCN-EXTRA": ()})
    found = explain(GUEST, to("10.32.0.10"), DESIRED, ReadBack((changed,), (NEW_TEXT,)))
    assert found.message == (
        "changed inside the guest: missing nat/VCN-SERVICES (ipv4);"
        " changed filter/VCN-SERVICES (ipv4); added nat/VCN-EXTRA (ipv4)"
    )


def test_guest_that_has_not_applied_its_rules_is_behind() -> None:
    guest = replace(GUEST, digest=digest(OLD_TEXT))
    behind = ReadBack((OLD_TEXT,), (NEW_TEXT,))
    found = explain(guest, to("10.32.0.10"), DESIRED, behind)
    assert (found.state, found.agrees) == (RulesState.BEHIND, False)
    assert found.message == "kata-bridge has a newer ruleset, which is not applied yet"
    refused = replace(DESIRED, problem="line 3: no xt_recent")
    assert explain(guest, to("10.32.0.10"), refused, behind).message == "line 3: no xt_recent"


def test_kata_bridge_without_the_newest_ruleset_is_behind() -> None:
    guest = replace(GUEST, digest=digest(OLD_TEXT))
    found = explain(guest, to("10.32.0.10"), DESIRED, ReadBack((OLD_TEXT,), (OLD_TEXT,)))
    assert (found.state, found.message) == (
        RulesState.BEHIND,
        "kubeproxy-ext has a newer ruleset, which kata-bridge has not received yet",
    )


def test_unreadable_guest_reports_why() -> None:
    guest = replace(GUEST, not_injectable="its policy refuses SetIPTables")
    found = explain(guest, to("10.32.0.10"), DESIRED, "its policy refuses SetIPTables")
    assert (found.state, found.agrees) == (RulesState.NOT_INJECTABLE, None)
    lines = render(found)
    assert lines[1] == (
        "-> goes to one of 10.0.0.21:8080, 10.0.0.22:8080 if the guest has its rules; that is unknown"
    )
    assert lines[-2:] == [
        "unknown   actual outcome: its policy refuses SetIPTables",
        "rules     notInjectable: its policy refuses SetIPTables",
    ]


def test_without_kubeproxy_ext_the_guests_rules_are_traced() -> None:
    found = explain(GUEST, to("10.32.0.99"), "kubeproxy-ext: connection refused", APPLIED)
    assert (found.state, found.agrees, found.expected) == (RulesState.CURRENT, None, None)
    lines = render(found)
    assert lines[1] == "-> is rejected: the sender fails at once; the expected outcome is unknown"
    assert lines[-2:] == [
        "unknown  expected outcome: kubeproxy-ext: connection refused",
        "rules    current: by kata-bridge's account alone",
    ]


def test_without_both_daemons_the_outcome_is_unknown() -> None:
    found = explain(GUEST, to("10.32.0.99"), "a", "b")
    assert (found.state, render(found)[1]) == (RulesState.UNKNOWN, "-> unknown")


def test_guest_without_a_ruleset_reports_why() -> None:
    desired = DesiredRules(None, problem="its pod belongs to no tenant")
    guest = replace(GUEST, tenant="", tenant_pod="", digest="")
    found = explain(guest, to("10.96.0.1"), desired, ReadBack((), ()))
    assert (found.state, found.message) == (RulesState.NO_RULESET, "its pod belongs to no tenant")
    assert render(found)[0] == "tcp 10.0.0.10 -> 10.96.0.1:80 from vc-a-web/front"
    assert found.unknown == ("expected outcome: its pod belongs to no tenant",)
    found = explain(guest, to("10.96.0.1"), replace(desired, problem=""), ReadBack((), ()))
    assert found.message == "kubeproxy-ext has not made a ruleset for this guest yet"


def test_wrong_port_gets_a_note_with_the_right_ones() -> None:
    found = explain(GUEST, to("10.32.0.10", 81), DESIRED, APPLIED)
    assert found.is_good
    assert render(found)[1] == "-> is rejected: the sender fails at once, as expected"
    assert found.notes == ("10.32.0.10 is an address of Service web/shop, which has 80/tcp only",)


def test_service_of_another_network_gets_a_note() -> None:
    desired = replace(DESIRED, elsewhere=(("vc-a-web/bar", "blue"),))
    assert explain(GUEST, to("10.96.0.77"), desired, APPLIED).notes == (
        "10.96.0.77 is an address of Service web/bar in network blue; this guest is not in that network",
    )


def test_unsynced_kubeproxy_ext_gets_a_note() -> None:
    desired = replace(
        DESIRED, sync_state="lastKnown", last_known_age_s=65.0, distrusted_namespaces=("vc-a-web", "vc-a-x")
    )
    assert explain(GUEST, to("10.32.0.10"), desired, APPLIED).notes == (
        "kubeproxy-ext is not synced: it uses the last known Services, which are 1 min 5 s old",
        "a relist removed all Services of namespace web; their rules stay until it is confirmed",
        "a relist removed all Services of namespace vc-a-x; their rules stay until it is confirmed",
    )
    assert explain(GUEST, to("10.32.0.10"), replace(DESIRED, sync_state="distrusted"), APPLIED).notes == (
        "the tenant's Services: distrusted",
    )


def test_json_has_both_traces() -> None:
    frontends = (replace(FRONTENDS[0], to=NoBackendAction.DROP),)
    rules = GuestRules(Family.IPV4, (ServiceRules("vc-a-web/shop", frontends),))
    found = as_json(explain(GUEST, to("10.96.0.11"), DesiredRules(rules, digest(NEW_TEXT), 7), APPLIED))
    actual = found.pop("actual")
    assert isinstance(actual, dict)
    assert (actual["endpoints"], actual["verdicts"]) == (["10.0.0.21:8080", "10.0.0.22:8080"], [])
    assert found == {
        "guest": "g1",
        "pod": "vc-a-web/front",
        "tenant": "vc-a",
        "tenantPod": "web/front",
        "packet": {"protocol": "tcp", "source": "10.0.0.10", "destination": "10.96.0.11", "port": 80},
        "expected": {
            "endpoints": [],
            "verdicts": ["drop"],
            "steps": [
                "tcp 10.96.0.11:80 is Service port vc-a-web/shop:http",
                "its traffic policy or source ranges leave this guest no endpoint: the packet is dropped",
            ],
        },
        "agrees": False,
        "rules": "current",
        "message": f"generation 7, digest {digest(NEW_TEXT)[:12]}",
        "unknown": [],
        "notes": [],
    }


def test_rules_that_cannot_be_traced_make_the_outcome_unknown() -> None:
    bad = replace(NEW_TEXT, objects={"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": ("'",)})
    found = explain(GUEST, to("10.96.0.11"), DESIRED, ReadBack((bad,), (NEW_TEXT,)))
    assert found.actual is None
    assert found.unknown == ("actual outcome: the guest's rules cannot be traced: ' without an option: '",)


# ---- the rules probe

PROBE = "192.0.2.61"
WITH_PROBE = with_rules_probe(RULES, RulesProbe(PROBE, None, 10561))
PROBE_TEXT = iptables(WITH_PROBE)
OLD_PROBE_TEXT = iptables(with_rules_probe(OLD, RulesProbe(PROBE, None, 10561)))
FOR = (
    f"{PROBE}:10561 is the rules probe (kubeproxy-ext's `canary`): with a ruleset installed it leads to the "
    "guest's own loopback, and the init container of packaging/canary ends"
)


def probe(read_back: ReadBack | str, reported: Document, port: int = 10561) -> Explanation:
    desired = replace(DESIRED, rules=WITH_PROBE, digest=digest(PROBE_TEXT))
    return explain(replace(GUEST, digest=digest(reported)), to(PROBE, port), desired, read_back)


def test_probe_of_the_current_generation_succeeds() -> None:
    found = probe(ReadBack((PROBE_TEXT,), (PROBE_TEXT,)), PROBE_TEXT)
    assert found.is_good
    assert found.notes == (FOR, "the guest has the current generation, 7: the init container ends")
    lines = render(found)
    assert lines[1] == "-> goes to 127.0.0.1:10561, as expected"
    assert "          tcp 192.0.2.61:10561 is Service port -/rules-probe" in lines


def test_probe_of_an_older_generation_succeeds() -> None:
    found = probe(ReadBack((OLD_PROBE_TEXT,), (PROBE_TEXT,)), OLD_PROBE_TEXT)
    assert (found.state, found.agrees) == (RulesState.BEHIND, True)
    assert found.notes == (
        FOR,
        "the guest does not have the current generation, but its rules have the probe: "
        "the init container ends",
    )


@pytest.mark.parametrize("installed", [(), (OLD_TEXT,)])
def test_probe_without_its_rule_keeps_waiting(installed: tuple[Document, ...]) -> None:
    found = probe(ReadBack(installed, (PROBE_TEXT,)), PROBE_TEXT)
    assert not found.is_good
    assert found.notes == (
        FOR,
        "the guest does not have the current generation, and no rule for the probe: "
        "the init container keeps waiting",
    )


def test_probe_is_unknown_while_the_guest_cannot_be_read() -> None:
    found = probe("kata-bridge: it is away", PROBE_TEXT)
    assert found.notes == (FOR, "whether the guest has the rules probe is unknown")


def test_other_port_of_the_probe_gets_a_note() -> None:
    found = probe(ReadBack((PROBE_TEXT,), (PROBE_TEXT,)), PROBE_TEXT, port=80)
    assert found.notes == (f"{PROBE} is an address of the rules probe, which has 10561/tcp only",)


def test_service_with_the_probes_address_is_not_the_probe() -> None:
    has_it = (*FRONTENDS, Frontend(PROBE, 10561, Protocol.TCP, SHOP, ENDPOINTS))
    rules = with_rules_probe(
        replace(RULES, services=(ServiceRules("vc-a-web/shop", has_it),)), RulesProbe(PROBE, None, 10561)
    )
    text = iptables(rules)
    desired = replace(DESIRED, rules=rules, digest=digest(text))
    guest = replace(GUEST, digest=digest(text))
    found = explain(guest, to(PROBE, 10561), desired, ReadBack((text,), (text,)))
    assert (found.is_good, found.notes) == (True, ())


def test_explanation_folds_at_the_width() -> None:
    found = explain(GUEST, to("10.32.0.10"), DESIRED, APPLIED)
    lines = render(found, 60)
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(render(found)).split())
