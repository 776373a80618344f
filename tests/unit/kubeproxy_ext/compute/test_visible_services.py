# SPDX-License-Identifier: Apache-2.0
"""Which Services are visible, and which guests are in their source ranges."""

import pytest

from kubeproxy_ext.compute.parse import ServiceInfo, parse_service
from kubeproxy_ext.compute.visible_services import in_source_ranges, visible_services_of
from ruleset.model import Family, Frontend, NoBackendAction, Protocol, ServiceRules
from tests.unit.kubeproxy_ext.compute import builders


def parsed(
    reference: str, ip: str, *, ranges: tuple[str, ...] = (), balancer: tuple[str, ...] = ()
) -> ServiceInfo:
    found = parse_service(builders.service(reference, ip, ranges=ranges, balancer=balancer))
    assert found is not None
    return found


def test_visible_services_are_sorted_by_reference() -> None:
    references = ["a/z", "a-b/c", "a/b", "b/a"]
    services = [parsed(one, f"172.30.0.{n}") for n, one in enumerate(references)]
    visible = visible_services_of(services, Family.IPV4)
    assert visible.services == (("a-b", "c"), ("a", "b"), ("a", "z"), ("b", "a"))
    assert visible_services_of(services, Family.IPV6).services == ()


def test_source_ranges_need_a_balancer_address() -> None:
    with_source_ranges = parsed("a/r", "172.30.0.1", ranges=("10.0.0.0/8",), balancer=("1.2.3.4",))
    services = [with_source_ranges, parsed("a/n", "172.30.0.2", ranges=("10.0.0.0/8",))]
    assert visible_services_of(services, Family.IPV4).with_source_ranges == (with_source_ranges,)


@pytest.mark.parametrize(
    ("pod_ips", "is_in_source_ranges"),
    [
        (("10.0.0.1",), True),
        (("192.168.0.1",), True),
        (("11.0.0.1",), False),
        (("10.0.0.1", "11.0.0.1"), False),
        (("10.0.0.1", "fd00::1"), True),
        (("fd00::1",), False),
        ((), False),
    ],
)
def test_all_guest_addresses_must_be_in_source_ranges(
    pod_ips: tuple[str, ...], is_in_source_ranges: bool
) -> None:
    with_source_ranges = parsed(
        "a/r", "172.30.0.1", ranges=("10.0.0.0/8", "192.168.0.0/16"), balancer=("1.2.3.4",)
    )
    assert in_source_ranges(with_source_ranges, pod_ips, Family.IPV4) == is_in_source_ranges
    assert in_source_ranges(with_source_ranges, pod_ips, Family.IPV6)


def test_equal_rules_without_conflicts_are_one_object() -> None:
    visible_service, conflicting = parsed("a/a", "172.30.0.1"), parsed("a/b", "172.30.0.1")
    visible = visible_services_of([conflicting, visible_service], Family.IPV4)
    kept = Frontend("172.30.0.2", 80, Protocol.TCP, "a/b:p", NoBackendAction.REJECT)
    conflicts = Frontend("172.30.0.1", 80, Protocol.TCP, "a/b:p", NoBackendAction.REJECT)
    rules = ServiceRules("a/b", (conflicts, kept))
    assert visible.without_conflicts(rules) == ServiceRules("a/b", (kept,))
    assert visible.without_conflicts(rules) is visible.without_conflicts(rules)
    changed = Frontend("172.30.0.2", 80, Protocol.TCP, "a/b:p", NoBackendAction.DROP)
    assert visible.without_conflicts(ServiceRules("a/b", (conflicts, changed))) == ServiceRules(
        "a/b", (changed,)
    )
    other = ServiceRules("a/a", (conflicts,))
    assert visible.without_conflicts(other) is other
