# SPDX-License-Identifier: Apache-2.0
"""Services from inside guests that have kernels of their own, and no others' in any of them."""

from collections import Counter

from kata_bridge.api.messages import ResultCode
from ruleset.document import Ruleset, make_ruleset
from ruleset.iptables.render import render
from ruleset.model import Capture, Endpoint, Family, GuestRules, Protocol, Refusal, ServiceRules, Target
from tests.lab_vm.site import PLANS, Site

CIDRS = {Family.IPV4: "10.96.0.0/16", Family.IPV6: "fd00:96::/112"}


def service(
    name: str,
    ip: str,
    *endpoints: str,
    protocol: Protocol = Protocol.TCP,
    port: int = 80,
    affinity_s: int | None = None,
) -> ServiceRules:
    """One Service with one port; endpoints are addresses, and serve at 8080."""
    places = tuple(sorted((Endpoint(each, 8080) for each in endpoints), key=str))
    full = f"default/{name}"
    to: Target | Refusal = Refusal.REJECT
    if places:
        to = Target(f"{full}:p", protocol, False, places, affinity_s)
    return ServiceRules(full, (Capture(ip, port, protocol, f"{full}:p", to),))


def ruleset(generation: int, *services: ServiceRules) -> Ruleset:
    """These Services, and whatever else is in the ranges rejected; both families."""
    documents = []
    for family, cidr in CIDRS.items():
        of_family = (each for each in services if (":" in each.captures[0].ip) is (family is Family.IPV6))
        rules = GuestRules(family, tuple(sorted(of_family, key=lambda each: each.service)), (cidr,))
        documents.append(render(rules))
    return make_ruleset(generation, documents)


def test_services_work_from_inside(site: Site) -> None:
    wanted = ruleset(
        1,
        service("web", "10.96.0.10", "10.0.0.21", "10.0.0.22"),
        service("dns", "10.96.0.53", "10.0.0.21", protocol=Protocol.UDP, port=53),
        service("idle", "10.96.0.66"),
        service("sticky", "10.96.0.77", "10.0.0.21", "10.0.0.22", affinity_s=10_800),
        service("six", "fd00:96::10", "fd00::21", "fd00::22"),
    )
    results = site.push(list(site.guests), wanted)
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
        assert set(guest.ends("fd00:96::10", 80, times=12)) == {"[fd00::21]:8080", "[fd00::22]:8080"}
        assert guest.end("10.96.9.9", 80) == "reject"
        assert guest.end("10.96.0.10", 81) == "reject"
        assert guest.end("10.0.0.22", 8080) == "10.0.0.22:8080"


def test_each_guest_has_what_its_kernel_can_do(site: Site) -> None:
    """This kernel has legacy tables of both families, and nf_tables without the families ip and ip6."""
    transports = {line["sandbox"]: line["transport"] for line in site.said(message="guest attached")}
    assert transports == {plan.name: "hybrid-vsock" if plan.is_vsock else "tcp" for plan in PLANS}
    for guest in site.guests.values():
        refusal = guest.run("nft", "add table ip probe")
        assert "Operation not supported" in refusal.errors
        assert guest.output("ls", "/sys/module/nf_tables")
        assert "-legacy-restore (legacy)" in guest.console() or "iptables-restore (legacy)" in guest.console()
