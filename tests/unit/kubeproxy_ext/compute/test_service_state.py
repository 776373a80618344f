# SPDX-License-Identifier: Apache-2.0
"""The world answers as its objects say: which Services a guest sees, and what its rules are then."""

from dataclasses import replace

import pytest

from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import EVERY_NETWORK, GuestView, ServiceGroup
from kubeproxy_ext.compute.parse import SliceInfo, parse_slice
from kubeproxy_ext.compute.service_state import ServiceState
from ruleset.model import (
    Endpoint,
    EndpointSet,
    Family,
    Frontend,
    GuestRules,
    Protocol,
    ServiceRules,
)
from tests.unit.kubeproxy_ext.compute import feed
from tests.unit.kubeproxy_ext.compute.states import DEFAULT, VIEW, meanings, world_of


def test_rules_of_a_guest() -> None:
    world = world_of(
        feed.namespace("A-web", "A", "web"),
        feed.service("A-web/s", "172.30.0.41", own_ip="10.96.0.5"),
        feed.endpoint_slice("A-web/s", "10.0.0.2", "10.0.0.1"),
    )
    target = EndpointSet(
        "A-web/s:p", Protocol.TCP, False, (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080))
    )
    assert world.rules_for(VIEW) == GuestRules(
        Family.IPV4,
        (
            ServiceRules(
                "A-web/s",
                (
                    Frontend("172.30.0.41", 80, Protocol.TCP, "A-web/s:p", target),
                    Frontend("10.96.0.5", 80, Protocol.TCP, "A-web/s:p", target),
                ),
            ),
        ),
        ("172.30.0.0/16",),
    )


def test_families_have_their_own_rules() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/s", ["172.30.0.41", "fd00:172::41"]),
        feed.endpoint_slice("A-web/s", "10.0.0.1"),
        feed.endpoint_slice("A-web/s", "fd00::1", number=2),
    )
    assert meanings(world.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}
    six = world.rules_for(replace(VIEW, family=Family.IPV6))
    assert meanings(six) == {"fd00:172::41": "A-web/s:p: [fd00::1]:8080"}
    assert six.service_cidrs == ("fd00:172::/64",)


def test_service_of_unknown_namespace_is_in_no_rules() -> None:
    world = world_of(feed.service("A-web/s", "172.30.0.41"))
    nobodys = replace(VIEW, tenant=None)
    assert not world.rules_for(VIEW).services
    assert not world.rules_for(nobodys).services
    world.take_changed_groups()
    world.put_namespace(feed.namespace("A-web", "A"))
    assert world.take_changed_groups() == {DEFAULT}
    assert meanings(world.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: REJECT"}
    assert not world.rules_for(nobodys).services
    world.remove_namespace("A-web")
    assert world.take_changed_groups() == {DEFAULT}
    assert not world.rules_for(VIEW).services


def test_super_cluster_services_belong_to_no_tenant() -> None:
    world = ServiceState(has_all_namespaces=True)
    world.put_service(feed.service("default/kubernetes", "172.30.0.1"))
    world.put_namespace(feed.namespace("A-default", "A", "default"))
    world.put_service(feed.service("A-default/kubernetes", "172.30.7.7", own_ip="172.30.0.1"))
    world.put_slice(feed.endpoint_slice("A-default/kubernetes", "10.2.0.1"))
    blue = replace(VIEW, networks=("blue",))
    for view in (VIEW, blue):
        assert meanings(world.rules_for(view)) == {
            "172.30.7.7": "A-default/kubernetes:p: 10.2.0.1:8080",
            "172.30.0.1": "A-default/kubernetes:p: 10.2.0.1:8080",
        }
    world.take_changed_groups()
    world.put_slice(feed.endpoint_slice("A-default/kubernetes", "10.2.0.2"))
    touched = world.take_changed_groups()
    assert touched == {ServiceGroup("A", EVERY_NETWORK)}
    assert touched & set(blue.groups)
    assert meanings(world.rules_for(replace(VIEW, tenant=None))) == {
        "172.30.0.1": "default/kubernetes:p: REJECT"
    }


def test_guest_sees_its_own_networks_only() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/d", "172.30.0.1"),
        feed.service("A-web/b", "172.30.0.2", network="blue"),
        feed.service("A-web/g", "172.30.0.3", network="green"),
    )

    def seen(*networks: str) -> set[str]:
        rules = world.rules_for(replace(VIEW, networks=networks))
        return {service.service for service in rules.services}

    assert seen() == seen("default") == {"A-web/d"}
    assert seen("blue") == {"A-web/b"}
    assert seen("green", "blue") == {"A-web/b", "A-web/g"}


def test_zone_of_the_view_overrides_the_node() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.node("here", "a"),
        feed.service("A-web/s", "172.30.0.41"),
        feed.endpoint_slice("A-web/s", "10.0.0.1", zones=["a"]),
        feed.endpoint_slice("A-web/s", "10.0.0.2", number=2, zones=["b"]),
    )

    def reached(view: GuestView) -> str:
        return meanings(world.rules_for(view))["172.30.0.41"].partition(": ")[2]

    assert reached(VIEW) == "10.0.0.1:8080"
    assert reached(replace(VIEW, zone="b")) == "10.0.0.2:8080"
    assert reached(replace(VIEW, zone="")) == "10.0.0.1:8080,10.0.0.2:8080"
    world.take_changed_groups()
    world.put_node(feed.node("there", "b"))
    assert world.take_changed_groups() == frozenset()
    world.put_node(feed.node("here", "b"))
    assert world.take_changed_groups() == {DEFAULT}
    assert reached(VIEW) == "10.0.0.2:8080"
    world.remove_node("here")
    assert reached(VIEW) == "10.0.0.1:8080,10.0.0.2:8080"


def test_slices_without_a_service_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(item: objects.EndpointSliceObject) -> SliceInfo | None:
        parsed.append(item.metadata.name)
        return parse_slice(item)

    monkeypatch.setattr("kubeproxy_ext.compute.service_state.parse_slice", counted)
    world = world_of(feed.namespace("A-web", "A"))
    for number in range(200):
        world.put_slice(feed.endpoint_slice("A-web/s", f"10.0.0.{number}"))
    assert parsed == []
    world.put_service(feed.service("A-web/s", "172.30.0.41"))
    assert len(parsed) == 1
    assert "10.0.0.199:8080" in meanings(world.rules_for(VIEW))["172.30.0.41"]
    world.remove_service(("A-web", "s"))
    world.put_slice(feed.endpoint_slice("A-web/s", "10.0.0.1"))
    assert len(parsed) == 1
    assert meanings(world.rules_for(VIEW)) == {}
    world.put_service(feed.service("A-web/s", "172.30.0.41"))
    assert "10.0.0.1:8080" in meanings(world.rules_for(VIEW))["172.30.0.41"]
    world.put_service(feed.service("A-web/s", "None"))
    world.remove_slice(("A-web", "s-1"))
    world.put_service(feed.service("A-web/s", "172.30.0.41"))
    assert "10.0.0.1" not in meanings(world.rules_for(VIEW))["172.30.0.41"]
