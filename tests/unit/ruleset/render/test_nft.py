# SPDX-License-Identifier: Apache-2.0
import zlib
from pathlib import Path

import pytest

from ruleset.document import check_objects
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, ServiceRules
from ruleset.names import Backend
from ruleset.render.nft import NAT_PRIORITY, render
from ruleset.syntax.nft import duration
from tests.unit.ruleset.models import TCP, everything, services

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("family", Family)
def test_each_kind_of_rule_is_written_out(family: Family) -> None:
    expected = (GOLDEN / f"everything-{family.value}.nft").read_text()
    assert render(everything(family)).text() == expected


def test_service_with_one_endpoint_is_one_element() -> None:
    objects = render(services(100, 1)).objects
    assert len(objects["map endpoints"]) == 1 + 100
    assert not any(name.startswith("chain VCN-") for name in objects)


def test_hundred_services_have_a_small_text() -> None:
    text = render(services(100, 2)).text().encode()
    assert len(text) < 24_000
    assert len(zlib.compress(text)) <= 5_000


def test_nat_of_a_mesh_acts_first() -> None:
    assert NAT_PRIORITY > -100, "where iptables' nat is, and a mesh with it"


def test_no_rule_matches_the_guests_own_addresses() -> None:
    for family in Family:
        assert "30080" not in render(everything(family)).text()


def test_overlapping_ranges_are_one_element() -> None:
    """nft refuses intervals that overlap."""
    rules = GuestRules(Family.IPV4, (), ("10.96.0.0/13", "10.96.0.0/12", "172.30.0.0/16", "fd00::/64"))
    assert render(rules).objects["set service-cidrs"] == (
        "type ipv4_addr",
        "flags interval",
        "10.96.0.0/12",
        "172.30.0.0/16",
    )


def test_affinity_of_one_endpoint_has_a_set() -> None:
    target = EndpointSet("ns1/svc1:p80", TCP, False, (Endpoint("fd00::3", 80),), affinity_s=3661)
    frontend = Frontend("fd00:172::1", 80, TCP, target.service_port, target)
    objects = render(GuestRules(Family.IPV6, (ServiceRules("ns1/svc1", (frontend,)),))).objects
    (name,) = (name.removeprefix("chain ") for name in objects if name.startswith("chain VCN-SEP-"))
    clients = f"{name}-1h1m1s"
    assert objects["chain VCN-SVC-XPGD46QRK7WJZT7O"] == (f"ip6 saddr @{clients} goto {name}", f"goto {name}")
    assert objects[f"chain {name}"] == (
        f"update @{clients} {{ ip6 saddr }} meta l4proto tcp dnat to [fd00::3]:80",
    )
    assert objects[f"set {clients}"] == (
        "type ipv6_addr",
        "size 1024",
        "flags dynamic,timeout",
        "timeout 1h1m1s",
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (1, "1s"), (59, "59s"), (60, "1m"), (10800, "3h"), (86400, "1d"), (90061, "1d1h1m1s")],
)
def test_duration_is_written_as_nft_prints_it(seconds: int, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize("family", Family)
def test_rendered_rules_are_in_the_vocabulary(family: Family) -> None:
    check_objects(render(everything(family)).objects, Backend.NFT)
    check_objects(render(services(20, 3, family, refused=[4], affinity_s=5)).objects, Backend.NFT)
