# SPDX-License-Identifier: Apache-2.0
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from ruleset.document import check_objects
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, NoBackendAction, ServiceRules
from ruleset.names import Backend
from ruleset.render.iptables import HOOKS, Renderer, render, weight
from tests.unit.ruleset.models import TCP, everything, services

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("family", Family)
def test_each_kind_of_rule_is_written_out(family: Family) -> None:
    expected = (GOLDEN / f"everything-{family.value}.iptables").read_text()
    assert render(everything(family)).text() == expected


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (1, "1.0000000000"),
        (2, "0.5000000000"),
        (3, "0.3333333333"),
        (10, "0.1000000000"),
        (100, "0.0100000000"),
        (1000, "0.0010000000"),
        (10000, "0.0001000000"),
        (100000, "0.0000100000"),
        (100001, "0.0000099999"),
    ],
)
def test_weight_has_ten_decimals(left: int, expected: str) -> None:
    assert weight(left) == expected


def test_weights_give_equal_shares() -> None:
    weights = [weight(left) for left in range(100_000, 1, -1)]
    assert all(one < next_one for one, next_one in pairwise(weights))


@pytest.mark.parametrize(
    ("count", "endpoints", "rules"), [(100, 1, 100), (100, 2, 300), (100, 10, 1100), (1000, 2, 3000)]
)
def test_rule_count_is_linear_in_endpoints(count: int, endpoints: int, rules: int) -> None:
    """S rules for S Services with one endpoint, else S(1+E)."""
    objects = render(services(count, endpoints)).objects
    in_nat = [rule for name in objects if name.startswith("nat/") for rule in objects[name]]
    assert len(in_nat) == rules + 1, "and the hook"
    in_filter = [rule for name in objects if name.startswith("filter/") for rule in objects[name]]
    assert len(in_filter) == 3, "the hook, what lets translated packets pass, and the catch-all"


def test_hundred_services_have_a_small_text() -> None:
    text = render(services(100, 2)).text().encode()
    assert len(text) < 36_000
    assert len(zlib.compress(text)) <= 5_000


def test_each_dispatch_rule_has_a_destination() -> None:
    """kube-proxy's rule for node ports would match all packets to the guest itself."""
    for family in Family:
        document = render(everything(family))
        assert all(rule.startswith("-d ") for rule in document.objects["nat/VCN-SERVICES"])
        assert "30080" not in document.text()
        assert "LOCAL" not in document.text()
        assert "comment" not in document.text()


def test_model_without_services_has_hooks() -> None:
    assert render(GuestRules(Family.IPV4, ())).objects == {
        **HOOKS,
        "nat/VCN-SERVICES": (),
        "filter/VCN-SERVICES": ("-m conntrack --ctstate DNAT -j RETURN",),
    }


def test_affinity_of_one_endpoint_has_a_list() -> None:
    """So a client keeps its endpoint when a second one is added."""
    endpoint = Endpoint("10.1.0.3", 80)
    target = EndpointSet("ns1/svc1:p80", TCP, False, (endpoint,), affinity_s=60)
    frontend = Frontend("172.30.0.41", 80, TCP, target.service_port, target)
    objects = render(GuestRules(Family.IPV4, (ServiceRules("ns1/svc1", (frontend,)),))).objects
    (name,) = (name for name in objects if name.startswith("nat/VCN-SEP-"))
    chain = name.removeprefix("nat/")
    known = f"--name {chain} --mask 255.255.255.255 --rsource"
    assert objects["nat/VCN-SERVICES"] == (
        "-d 172.30.0.41/32 -p tcp -m tcp --dport 80 -j VCN-SVC-XPGD46QRK7WJZT7O",
    )
    assert objects["nat/VCN-SVC-XPGD46QRK7WJZT7O"] == (
        f"-m recent --rcheck --seconds 60 --reap {known} -j {chain}",
        f"-j {chain}",
    )
    assert objects[name] == (f"-p tcp -m recent --set {known} -j DNAT --to-destination 10.1.0.3:80",)


def test_service_port_with_both_policies_has_two_chains() -> None:
    here, there = Endpoint("10.1.0.3", 80), Endpoint("10.1.0.4", 80)
    everywhere = EndpointSet("a/s:p", TCP, False, (here, there))
    local = EndpointSet("a/s:p", TCP, True, (here, there))
    frontends = (
        Frontend("172.30.0.41", 80, TCP, "a/s:p", local),
        Frontend("1.2.3.4", 80, TCP, "a/s:p", everywhere),
        Frontend("1.2.3.5", 80, TCP, "a/s:p", NoBackendAction.DROP),
    )
    objects = render(GuestRules(Family.IPV4, (ServiceRules("a/s", frontends),))).objects
    chains = sorted(name for name in objects if name.startswith("nat/VCN-SV"))
    assert [name[:12] for name in chains] == ["nat/VCN-SVC-", "nat/VCN-SVL-"]


@pytest.mark.parametrize("family", Family)
def test_rendered_rules_are_in_the_vocabulary(family: Family) -> None:
    check_objects(render(everything(family)).objects, Backend.IPTABLES)
    check_objects(render(services(20, 3, family, refused=[4], affinity_s=5)).objects, Backend.IPTABLES)


def test_renderer_reuses_unchanged_services() -> None:
    renderer = Renderer()
    before = services(50, 2)
    first = renderer.render(before)
    # The same Services but one, as a model that computes only changes passes them.
    new = services(50, 2, moved=[7])
    changed = new.services.index(next(s for s in new.services if s not in before.services))
    mixed = list(before.services)
    mixed[changed] = new.services[changed]
    second = renderer.render(GuestRules(Family.IPV4, tuple(mixed), before.service_cidrs))
    assert second == render(new)
    same = [name for name in first.objects if first.objects[name] is second.objects.get(name)]
    assert len(same) == len([name for name in first.objects if "/VCN-SVC-" in name]) - 1 + len(HOOKS)


def test_renderers_cache_is_bounded_by_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ruleset.render.iptables.MAX_CACHED_RULES", 100)
    renderer = Renderer()
    for change in range(20):
        frontends = tuple(
            Frontend(f"10.0.{change}.{number}", 80, TCP, "a/b", NoBackendAction.REJECT)
            for number in range(30)
        )
        rules = GuestRules(Family.IPV4, (ServiceRules("a/b", frontends),))
        assert renderer.render(rules) == render(rules)
        assert renderer.cached_rules == min(30 * (change + 1), 90)
    huge = tuple(
        Frontend(f"10.1.0.{number}", 80, TCP, "a/b", NoBackendAction.REJECT) for number in range(101)
    )
    renderer.render(GuestRules(Family.IPV4, (ServiceRules("a/b", huge),)))
    assert renderer.cached_rules == 0
