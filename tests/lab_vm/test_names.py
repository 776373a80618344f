# SPDX-License-Identifier: Apache-2.0
"""Names from stock CoreDNS, looked up in guests with kernels of their own, and connections to them.

Two tenants, one of them with two networks; every network has a server, a guest and other pods, at the
same addresses as the others. Records are the tenant's own: the super cluster has other namespaces and
other cluster IPs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.k8s.build import Binaries
from tests.k8s.ring.dns_servers import DOMAIN
from tests.lab_vm.machine import Machine
from tests.lab_vm.naming import BLUE_A, NETWORKS, RED_A, RED_B, NamedNetwork, Names, serving_names

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def names(
    k8s_programs: Binaries, tmp_path_factory: pytest.TempPathFactory, figures: list[str]
) -> Iterator[Names]:
    """Everything, each guest with its resolver and its rules."""
    with serving_names(k8s_programs, tmp_path_factory.mktemp("names")) as made:
        made.site.figures = figures
        for network in NETWORKS:
            # Without rules a query is lost, and retried after five seconds.
            made.site.wait_current(network.plan.name)
            wait_follows(guest_of(made, network), network, network.dns_ip)
        yield made


def guest_of(names: Names, network: NamedNetwork) -> Machine:
    return names.site.guests[network.plan.name]


def resolver(guest: Machine) -> str:
    return guest.output("cat", "/etc/resolv.conf")


def wait_follows(guest: Machine, network: NamedNetwork, ip: str) -> float:
    """Wait until a guest resolves by its network's server at `ip`; return the wait in seconds."""
    service = network.services[0]
    return guest.until(
        lambda: f"nameserver {ip}\n" in resolver(guest) and guest.addresses(service.name) == [service.ip],
        f"resolving {service.name} by {ip}",
    )


def full(name: str) -> str:
    return f"{name}.shop.svc.{DOMAIN}"


def test_guest_gets_the_resolver_of_its_network(names: Names) -> None:
    for network in NETWORKS:
        assert resolver(guest_of(names, network)) == (
            f"search shop.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\nnameserver {network.dns_ip}\noptions ndots:5\n"
        )


def test_services_by_name_lead_to_their_pods(names: Names) -> None:
    """By the search list, the rules to the server, its response, and the rules to the endpoint."""
    guest = guest_of(names, RED_A)
    for name in ("web", "web.shop", "web.shop.svc", full("web"), f"{full('web')}."):
        assert guest.addresses(name) == ["10.32.0.10"]
        assert guest.end(name, 80) == "10.0.0.21:8080"
    assert guest_of(names, BLUE_A).end("stock", 80) == "10.0.0.22:8080"
    # The other tenant allocated the same address.
    assert guest_of(names, RED_B).addresses("front") == ["10.32.0.10"]
    assert guest_of(names, RED_B).end("front", 80) == "10.0.0.22:8080"


def test_headless_services_and_their_pods(names: Names) -> None:
    guest = guest_of(names, RED_A)
    guest.until(lambda: guest.addresses("db") == ["10.0.0.31", "10.0.0.32"], "resolving db")
    assert guest.addresses("db-0.db") == ["10.0.0.31"]
    assert guest.addresses(full("db-1.db")) == ["10.0.0.32"]
    assert guest.end("db-1.db", 8080) == "10.0.0.32:8080"


def test_srv_and_reverse(names: Names) -> None:
    guest = guest_of(names, RED_A)
    guest.until(lambda: guest.addresses("db-1.db") == ["10.0.0.32"], "resolving db-1.db")
    found = guest.records(full("_http._tcp.db"), "SRV")
    assert found == ("NOERROR", f"8080 {full('db-0.db')}", f"8080 {full('db-1.db')}")
    assert guest.records("10.0.32.10.in-addr.arpa", "PTR") == ("NOERROR", full("web"))
    assert guest.records("31.0.0.10.in-addr.arpa", "PTR") == ("NOERROR", full("db-0.db"))
    assert guest.output("getent", "hosts", "10.0.0.32").split() == ["10.0.0.32", full("db-1.db")]
    other = guest_of(names, RED_B)
    other.until(lambda: other.addresses("db-0.db") == ["10.0.0.32"], "resolving db-0.db")
    assert other.records("10.0.32.10.in-addr.arpa", "PTR") == ("NOERROR", full("front"))
    assert other.records("32.0.0.10.in-addr.arpa", "PTR") == ("NOERROR", full("db-0.db"))


@pytest.mark.parametrize(
    ("network", "theirs"),
    [
        (RED_A, ("stock", "front", "stock-0.stock", "web.vc-a-shop", "kube-dns-red.vc-a-kube-system")),
        (BLUE_A, ("web", "db", "db-0.db", "front")),
        (RED_B, ("web", "stock", "db-1.db")),
    ],
    ids=["red-a", "blue-a", "red-b"],
)
def test_names_of_other_networks_and_tenants_do_not_resolve(
    names: Names, network: NamedNetwork, theirs: tuple[str, ...]
) -> None:
    """Names of another network, of another tenant, and the super cluster's names of one's own objects."""
    guest = guest_of(names, network)
    for name in theirs:
        assert guest.addresses(name) == ["no such name"]
        whole = full(name) if "vc-a" not in name else f"{name}.svc.{DOMAIN}"
        assert guest.records(whole, "A") == ("NXDOMAIN",)
    # Another network's server is not reachable either.
    for other in NETWORKS:
        if other is not network:
            assert guest.end(other.dns_ip, 53, "udp") == "reject"


def test_guests_that_run_follow_the_server(names: Names) -> None:
    guest, others = guest_of(names, RED_A), [guest_of(names, each) for each in (BLUE_A, RED_B)]
    before = [resolver(each) for each in others]
    boot_id = guest.output("cat", "/proc/sys/kernel/random/boot_id")
    names.move(RED_A, "10.96.0.77")
    took_s = wait_follows(guest, RED_A, "10.96.0.77")
    assert guest.end(RED_A.dns_ip, 53, "udp") == "reject"
    assert guest.end("web", 80) == "10.0.0.21:8080"
    assert guest.output("cat", "/proc/sys/kernel/random/boot_id") == boot_id
    assert [resolver(each) for each in others] == before
    names.site.figure(f"a1: another address for its DNS server, names by it after {took_s:.1f} s")
    names.move(RED_A, RED_A.dns_ip)
    wait_follows(guest, RED_A, RED_A.dns_ip)


def test_guests_follow_a_server_that_moves_behind_its_address(names: Names) -> None:
    """Another pod of the server: the resolver stays, the rules change."""
    guest, before = guest_of(names, BLUE_A), resolver(guest_of(names, BLUE_A))
    names.replace_server(BLUE_A, "10.0.0.54")
    wait_follows(guest, BLUE_A, BLUE_A.dns_ip)
    assert guest.end("stock", 80) == "10.0.0.22:8080"
    assert "10.0.0.53" not in guest.output("iptables-legacy-save", "-t", "nat")
    assert resolver(guest) == before


@pytest.mark.parametrize(
    ("network", "how"), [(RED_A, "reboot"), (RED_B, "lose_power")], ids=["reboot", "lose_power"]
)
def test_restarted_guest_has_its_names_back(names: Names, network: NamedNetwork, how: str) -> None:
    guest = guest_of(names, network)
    attached = len(names.site.log_lines(message="guest attached", sandbox=guest.name))
    getattr(guest, how)()
    names.site.wait_attached(guest.name, attached + 1)
    names.site.wait_current(guest.name)
    guest.until(guest.is_up, "up")
    took_s = wait_follows(guest, network, network.dns_ip)
    names.site.figure(f"{guest.name}: {how}, names {took_s:.1f} s after its rules were current")
