# SPDX-License-Identifier: Apache-2.0
"""Services from inside guests that have kernels of their own."""

from collections import Counter

import pytest

from bridge_api import rulesets
from bridge_api.messages import Flow, ResultCode
from ruleset.model import Protocol
from tests.lab_vm.kernels import DEBIAN
from tests.lab_vm.rules import service
from tests.lab_vm.site import PLANS, Site


def test_services_work_from_inside(site: Site) -> None:
    desired = site.ruleset(
        service("web", "10.96.0.10", "10.0.0.21", "10.0.0.22"),
        service("dns", "10.96.0.53", "10.0.0.21", protocol=Protocol.UDP, port=53),
        service("idle", "10.96.0.66"),
        service("sticky", "10.96.0.77", "10.0.0.21", "10.0.0.22", affinity_s=10_800),
        service("six", "fd00:96::10", "fd00::21", "fd00::22"),
    )
    results = site.push(list(site.guests), desired)
    assert {name: result.code for name, result in results.items()} == dict.fromkeys(
        site.guests, ResultCode.APPLIED
    ), results
    for guest in site.guests.values():
        spread = Counter(guest.ends("10.96.0.10", 80, times=30))
        assert set(spread) == {"10.0.0.21:8080", "10.0.0.22:8080"}
        assert min(spread.values()) >= 3
        assert guest.end("10.96.0.53", 53, "udp") == "10.0.0.21:8080"
        assert guest.end("10.96.0.66", 80) == "reject"
        assert len(set(guest.ends("10.96.0.77", 80, times=10))) == 1
        assert set(guest.ends("fd00:96::10", 80, times=30)) == {"[fd00::21]:8080", "[fd00::22]:8080"}
        assert guest.end("10.96.9.9", 80) == "reject"
        assert guest.end("10.96.0.10", 81) == "reject"
        assert guest.end("10.0.0.22", 8080) == "10.0.0.22:8080"


def test_guests_attach_by_their_own_transport(site: Site) -> None:
    transports = {line["sandbox"]: line["transport"] for line in site.log_lines(message="guest attached")}
    assert transports == {plan.name: "hybrid-vsock" if plan.is_vsock else "tcp" for plan in PLANS}


@pytest.mark.kernel("legacy")
def test_legacy_iptables_is_used_where_nft_is_not_possible(site: Site) -> None:
    """Legacy tables of both families, and nf_tables without the families ip and ip6, or none at all."""
    for guest in site.guests.values():
        refusal = guest.run("nft", "add table ip probe")
        assert "Operation not supported" in refusal.errors
        if site.kernel == DEBIAN:
            assert guest.output("ls", "/sys/module/nf_tables")
        assert "-legacy-restore (legacy)" in guest.console() or "iptables-restore (legacy)" in guest.console()


@pytest.mark.kernel("nft")
def test_nft_is_used_where_the_kernel_has_both(site: Site) -> None:
    """For any variant of the plain name iptables; iptables' tables have none of our rules."""
    site.push(list(site.guests), site.ruleset(service("web", "10.96.0.10", "10.0.0.21")))
    for guest in site.guests.values():
        assert "nft libnftables" in guest.console()
        assert guest.output("nft", "list", "tables").split("\n")[:2] == [
            "table ip vcnode",
            "table ip6 vcnode",
        ]
        for family in ("iptables", "ip6tables"):
            assert "VCN-" not in guest.output(f"{family}-legacy-save")
        assert guest.run("modprobe", "nf_tables").status != 0, "a kernel of its own, without modules"


def test_rules_read_back_equal_the_rules_written(site: Site) -> None:
    desired = site.ruleset(
        service("web", "10.96.0.10", "10.0.0.21"), service("six", "fd00:96::10", "fd00::21")
    )
    site.push(list(site.guests), desired)
    for name in site.guests:
        reply = site.read_back(name)
        assert reply.result is not None
        assert (reply.result.code, reply.result.digest) == (ResultCode.APPLIED, desired.digest)
        installed = {
            document.family: document.objects for document in map(rulesets.from_part, reply.installed)
        }
        for document in desired.documents:
            ours = {key: rules for key, rules in installed[document.family].items() if "VCN-MARK-" not in key}
            assert ours.keys() == document.objects.keys()


def test_long_lived_flow_follows_its_service(site: Site) -> None:
    """A client of a UDP Service that keeps its port: conntrack would lead it to the old endpoint."""
    first, second = (
        service("dns", "10.96.0.53", ip, protocol=Protocol.UDP, port=53) for ip in ("10.0.0.21", "10.0.0.22")
    )
    guests = list(site.guests)
    site.push(guests, site.ruleset(first))
    for guest in site.guests.values():
        assert guest.ends("10.96.0.53", 53, "udp", source_port=5353) == ["10.0.0.21:8080"]
    changed = site.ruleset(second)
    site.push(guests[:1], changed)
    site.push(guests[1:], changed, [Flow(protocol="udp", destination="10.96.0.53", port=53)])
    stale, *others = site.guests.values()
    assert stale.ends("10.96.0.53", 53, "udp", source_port=5353) == ["10.0.0.21:8080"]
    for guest in others:
        assert guest.ends("10.96.0.53", 53, "udp", source_port=5353) == ["10.0.0.22:8080"]


def test_resolv_conf_is_written_in_place(site: Site) -> None:
    guest = site.guests["a1"]
    number = guest.output("stat", "-c", "%i", "/etc/resolv.conf")
    text = "nameserver 10.96.0.53\nsearch default.svc.cluster.local\n"
    assert site.set_resolv_conf("a1", text).code is ResultCode.APPLIED
    assert guest.output("cat", "/etc/resolv.conf") == text
    assert guest.output("stat", "-c", "%i", "/etc/resolv.conf") == number
    assert "192.0.2.53" in site.guests["a2"].output("cat", "/etc/resolv.conf")
