# SPDX-License-Identifier: Apache-2.0
import pytest

from ruleset.model import Family, Frontend, GuestRules, NoBackendAction, Protocol, ServiceRules
from ruleset.render.frontends import in_dispatch_order, is_renderable, merged_cidrs


def _capture(ip: str, port: int = 80) -> Frontend:
    return Frontend(ip, port, Protocol.TCP, "a/s", NoBackendAction.REJECT)


@pytest.mark.parametrize(
    ("ip", "expected"),
    [
        ("172.30.0.41", True),
        ("1.2.3.4", True),
        ("fd00:172::1", True),
        ("192.168.0.2", True),
        ("", False),
        ("0.0.0.0", False),  # noqa: S104 - nothing listens
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("::", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
    ],
)
def test_only_addresses_of_services_are_rendered(ip: str, expected: bool) -> None:
    assert is_renderable(_capture(ip)) is expected


def test_dns_is_first_then_apiservers_then_names() -> None:
    services = [
        ServiceRules("a/dns-like", (_capture("10.0.0.1", 5353),)),
        ServiceRules("a/kubernetes", (_capture("10.0.0.2", 443),)),
        ServiceRules("t1-default/kubernetes", (_capture("10.0.0.3", 443),)),
        ServiceRules("t1-kube-system/kube-dns", (_capture("10.0.0.4", 9153), _capture("10.0.0.4", 53))),
        ServiceRules("zz/dns", (_capture("10.0.0.5", 53),)),
    ]
    assert [service.service for service in in_dispatch_order(GuestRules(Family.IPV4, tuple(services)))] == [
        "t1-kube-system/kube-dns",
        "zz/dns",
        "t1-default/kubernetes",
        "a/dns-like",
        "a/kubernetes",
    ]


def test_service_ranges_of_the_family_are_merged() -> None:
    cidrs = ("172.30.0.0/16", "fd00:172::/109", "10.96.0.0/13", "10.104.0.0/13", "fd00:172::8:0/109")
    assert merged_cidrs(GuestRules(Family.IPV4, (), cidrs)) == ("10.96.0.0/12", "172.30.0.0/16")
    assert merged_cidrs(GuestRules(Family.IPV6, (), cidrs)) == ("fd00:172::/108",)
    assert merged_cidrs(GuestRules(Family.IPV6, ())) == ()
