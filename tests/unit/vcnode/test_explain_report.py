# SPDX-License-Identifier: Apache-2.0
"""What is said of a packet, given what each of the three knows."""

from dataclasses import replace

import pytest

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
from ruleset.names import endpoint_set_chain
from ruleset.render.iptables import render as iptables
from ruleset.render.nft import render as nft
from ruletrace.packet import Packet
from vcnode.explain_report import Filter, State, Subject, Wanted, as_json, render, report

SHOP = "vc-a-web/shop:http"
TARGET = EndpointSet(SHOP, Protocol.TCP, False, (Endpoint("10.0.0.21", 8080), Endpoint("10.0.0.22", 8080)))
CAPTURES = (
    Frontend("10.96.0.11", 80, Protocol.TCP, SHOP, TARGET),
    Frontend("10.32.0.10", 80, Protocol.TCP, SHOP, TARGET),
)
RULES = GuestRules(Family.IPV4, (ServiceRules("vc-a-web/shop", CAPTURES),), ("10.32.0.0/16", "10.96.0.0/16"))
OLD = GuestRules(Family.IPV4, (), ("10.32.0.0/16", "10.96.0.0/16"))


def digest(*documents: Document) -> str:
    return make_ruleset(1, documents).digest


NEW_TEXT, OLD_TEXT = iptables(RULES), iptables(OLD)
SUBJECT = Subject(
    "g1", "vc-a-web/front", "vc-a", "web/front", ("10.0.0.10",), "agent", digest=digest(NEW_TEXT)
)
WANTED = Wanted(RULES, digest(NEW_TEXT), 7, namespaces={"vc-a-web": "web"})
IN = Filter((NEW_TEXT,), (NEW_TEXT,))


def to(address: str, port: int = 80) -> Packet:
    return Packet("10.0.0.10", Protocol.TCP, address, port)


def test_all_is_well_and_told_in_the_tenants_names() -> None:
    said = report(SUBJECT, to("10.32.0.10"), WANTED, IN)
    assert (said.is_good, said.state) == (True, State.CURRENT)
    chain, both = endpoint_set_chain(TARGET), "to 10.0.0.21:8080, 10.0.0.22:8080"
    assert render(said) == [
        "tcp 10.0.0.10 -> 10.32.0.10:80 from web/front of tenant vc-a",
        "-> goes to one of 10.0.0.21:8080, 10.0.0.22:8080, as it should",
        "",
        "guest   g1, vc-a-web/front in the super cluster, reached by agent",
        "should  10.0.0.21:8080, 10.0.0.22:8080",
        "        tcp 10.32.0.10:80 belongs to Service port web/shop:http",
        "        it goes to one of 2 endpoints: 10.0.0.21:8080, 10.0.0.22:8080",
        "does    10.0.0.21:8080, 10.0.0.22:8080",
        '        nat OUTPUT 1 "-j VCN-SERVICES": on to VCN-SERVICES',
        f'        nat VCN-SERVICES 2 "-d 10.32.0.10/32 -p tcp -m tcp --dport 80 -j {chain}": on to {chain}',
        f'        nat {chain} 1 "-p tcp -m statistic --mode random --probability 0.5000000000 -j DNAT'
        ' --to-destination 10.0.0.21:8080": 50 % of new connections: the destination becomes 10.0.0.21:8080',
        f'        nat {chain} 2 "-p tcp -j DNAT --to-destination 10.0.0.22:8080":'
        " 50 % of new connections: the destination becomes 10.0.0.22:8080",
        f'        {both}: filter OUTPUT 1 "-m conntrack --ctstate NEW -j VCN-SERVICES": on to VCN-SERVICES',
        f'        {both}: filter VCN-SERVICES 1 "-m conntrack --ctstate DNAT -j RETURN":'
        " back to where it came from",
        f"        {both}: filter OUTPUT: no rule takes it, policy ACCEPT: it goes on",
        f"rules   current: generation 7, digest {digest(NEW_TEXT)[:12]}",
    ]


@pytest.mark.parametrize("render_text", [iptables, nft])
def test_both_languages_are_walked(render_text: object) -> None:
    assert callable(render_text)
    text = render_text(RULES)
    wanted = replace(WANTED, digest=digest(text))
    said = report(replace(SUBJECT, digest=digest(text)), to("10.96.0.11"), wanted, Filter((text,), (text,)))
    assert said.is_good


def test_a_flushed_guest_has_drifted() -> None:
    said = report(SUBJECT, to("10.32.0.10"), WANTED, Filter((), (NEW_TEXT,)))
    assert (said.is_good, said.agrees, said.state) == (False, False, State.DRIFTED)
    lines = render(said)
    assert lines[1] == (
        "-> leaves for the destination that it has, untouched; IT SHOULD NOT:"
        " it goes to one of 10.0.0.21:8080, 10.0.0.22:8080, by the model"
    )
    assert "        the guest holds no rule of ours: the packet passes" in lines
    assert lines[-1].startswith("rules   drifted: somebody changed them in the guest: missing filter/OUTPUT")


def test_what_was_changed_is_named() -> None:
    objects = dict(NEW_TEXT.objects)
    del objects["nat/VCN-SERVICES"]
    changed = replace(NEW_TEXT, objects={**objects, "filter/VCN-SERVICES": (), "nat/VCN-EXTRA": ()})
    said = report(SUBJECT, to("10.32.0.10"), WANTED, Filter((changed,), (NEW_TEXT,)))
    assert said.why == (
        "somebody changed them in the guest: missing nat/VCN-SERVICES (ipv4);"
        " changed filter/VCN-SERVICES (ipv4); added nat/VCN-EXTRA (ipv4)"
    )


def test_a_guest_whose_rules_are_not_in_yet_is_behind() -> None:
    subject = replace(SUBJECT, digest=digest(OLD_TEXT))
    said = report(subject, to("10.32.0.10"), WANTED, Filter((OLD_TEXT,), (NEW_TEXT,)))
    assert (said.state, said.agrees) == (State.BEHIND, False)
    assert said.why == "kata-bridge has newer ones for it, which are not in yet"
    refused = replace(WANTED, problem="line 3: no xt_recent")
    said = report(subject, to("10.32.0.10"), refused, Filter((OLD_TEXT,), (NEW_TEXT,)))
    assert said.why == "line 3: no xt_recent"


def test_kata_bridge_may_be_behind_too() -> None:
    subject = replace(SUBJECT, digest=digest(OLD_TEXT))
    said = report(subject, to("10.32.0.10"), WANTED, Filter((OLD_TEXT,), (OLD_TEXT,)))
    assert (said.state, said.why) == (
        State.BEHIND,
        "kubeproxy-ext has newer ones, which kata-bridge has not got yet",
    )


def test_a_guest_that_cannot_be_reached_says_why() -> None:
    subject = replace(SUBJECT, not_injectable="its policy refuses SetIPTables")
    said = report(subject, to("10.32.0.10"), WANTED, "its policy refuses SetIPTables")
    assert (said.state, said.agrees) == (State.NOT_INJECTABLE, None)
    lines = render(said)
    assert lines[1].startswith("-> goes to one of 10.0.0.21:8080, 10.0.0.22:8080, if the guest's rules are")
    assert lines[-2:] == [
        "not known  what it does is not known: its policy refuses SetIPTables",
        "rules      notInjectable: its policy refuses SetIPTables",
    ]


def test_without_kubeproxy_ext_the_rules_of_the_guest_are_walked_all_the_same() -> None:
    said = report(SUBJECT, to("10.32.0.99"), "kubeproxy-ext: nobody listens", IN)
    assert (said.state, said.agrees, said.model) == (State.CURRENT, None, None)
    assert render(said)[1] == "-> is rejected: the sender is told at once; whether it should is not known"


def test_nothing_at_all_is_known() -> None:
    said = report(SUBJECT, to("10.32.0.99"), "a", "b")
    assert (said.state, render(said)[1]) == (State.UNKNOWN, "-> not known")


def test_a_guest_without_rules_says_why() -> None:
    wanted = Wanted(None, problem="its pod is no tenant's")
    said = report(
        replace(SUBJECT, tenant="", tenant_pod="", digest=""), to("10.96.0.1"), wanted, Filter((), ())
    )
    assert (said.state, said.why) == (State.NO_RULESET, "its pod is no tenant's")
    assert render(said)[0] == "tcp 10.0.0.10 -> 10.96.0.1:80 from vc-a-web/front"
    assert "what it should do is not known: its pod is no tenant's" in said.why_not


def test_a_wrong_port_is_told_the_right_one() -> None:
    said = report(SUBJECT, to("10.32.0.10", 81), WANTED, IN)
    assert said.is_good
    assert render(said)[1] == "-> is rejected: the sender is told at once, as it should"
    assert said.notes == ("10.32.0.10 is an address of Service web/shop, with 80/tcp alone",)


def test_a_service_of_another_network_is_named() -> None:
    wanted = replace(WANTED, elsewhere=(("vc-a-web/bar", "blue"),))
    assert report(SUBJECT, to("10.96.0.77"), wanted, IN).notes == (
        "10.96.0.77 is an address of Service web/bar in network blue, where this guest is not",
    )


def test_what_is_known_of_the_tenant_is_noted() -> None:
    wanted = replace(
        WANTED, knowledge="last known", last_known_age_s=65.0, held_namespaces=("vc-a-web", "vc-a-x")
    )
    assert report(SUBJECT, to("10.32.0.10"), wanted, IN).notes == (
        "kubeproxy-ext has not heard the API server: these are the last known Services, 1 min 5 s old",
        "a list that takes all Services from namespace web is not believed yet",
        "a list that takes all Services from namespace vc-a-x is not believed yet",
    )
    assert report(SUBJECT, to("10.32.0.10"), replace(WANTED, knowledge="held"), IN).notes == (
        "the tenant's Services: held",
    )


def test_json() -> None:
    frontends = (replace(CAPTURES[0], to=NoBackendAction.DROP),)
    rules = GuestRules(Family.IPV4, (ServiceRules("vc-a-web/shop", frontends),))
    said = report(SUBJECT, to("10.96.0.11"), Wanted(rules, digest(NEW_TEXT), 7), IN)
    found = as_json(said)
    does = found.pop("does")
    assert isinstance(does, dict)
    assert (does["endpoints"], does["fates"]) == (["10.0.0.21:8080", "10.0.0.22:8080"], [])
    assert found == {
        "guest": "g1",
        "pod": "vc-a-web/front",
        "tenant": "vc-a",
        "tenantPod": "web/front",
        "packet": {"protocol": "tcp", "source": "10.0.0.10", "destination": "10.96.0.11", "port": 80},
        "should": {
            "endpoints": [],
            "fates": ["drop"],
            "steps": [
                "tcp 10.96.0.11:80 belongs to Service port vc-a-web/shop:http",
                "this guest may not reach it that way, so it is dropped: the sender waits",
            ],
        },
        "agrees": False,
        "rules": "current",
        "why": f"generation 7, digest {digest(NEW_TEXT)[:12]}",
        "notKnown": [],
        "notes": [],
    }


def test_rules_that_cannot_be_read_are_said() -> None:
    bad = Document(
        Family.IPV4, NEW_TEXT.backend, {"nat/OUTPUT": ("-j VCN-SERVICES",), "nat/VCN-SERVICES": ("'",)}
    )
    said = report(SUBJECT, to("10.96.0.11"), WANTED, Filter((bad,), (NEW_TEXT,)))
    assert said.guest is None
    assert "its rules cannot be followed" in said.why_not[0]
