# SPDX-License-Identifier: Apache-2.0
"""Which Services a guest sees, and its rules."""

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
from tests.unit.kubeproxy_ext.compute import builders
from tests.unit.kubeproxy_ext.compute.service_states import DEFAULT, VIEW, meanings, state_of


def test_rules_of_a_guest() -> None:
    state = state_of(
        builders.namespace("A-web", "A", "web"),
        builders.service("A-web/s", "172.30.0.41", own_ip="10.96.0.5"),
        builders.endpoint_slice("A-web/s", "10.0.0.2", "10.0.0.1"),
    )
    target = EndpointSet(
        "A-web/s:p", Protocol.TCP, False, (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080))
    )
    assert state.rules_for(VIEW) == GuestRules(
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
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/s", ["172.30.0.41", "fd00:172::41"]),
        builders.endpoint_slice("A-web/s", "10.0.0.1"),
        builders.endpoint_slice("A-web/s", "fd00::1", number=2),
    )
    assert meanings(state.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}
    six = state.rules_for(replace(VIEW, family=Family.IPV6))
    assert meanings(six) == {"fd00:172::41": "A-web/s:p: [fd00::1]:8080"}
    assert six.service_cidrs == ("fd00:172::/64",)


def test_service_of_unknown_namespace_is_in_no_rules() -> None:
    state = state_of(builders.service("A-web/s", "172.30.0.41"))
    nobodys = replace(VIEW, tenant=None)
    assert not state.rules_for(VIEW).services
    assert not state.rules_for(nobodys).services
    state.take_changed_groups()
    state.put_namespace(builders.namespace("A-web", "A"))
    assert state.take_changed_groups() == {DEFAULT}
    assert meanings(state.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: REJECT"}
    assert not state.rules_for(nobodys).services
    state.remove_namespace("A-web")
    assert state.take_changed_groups() == {DEFAULT}
    assert not state.rules_for(VIEW).services


def test_super_cluster_services_belong_to_no_tenant() -> None:
    state = ServiceState(has_all_namespaces=True)
    state.put_service(builders.service("default/kubernetes", "172.30.0.1"))
    state.put_namespace(builders.namespace("A-default", "A", "default"))
    state.put_service(builders.service("A-default/kubernetes", "172.30.7.7", own_ip="172.30.0.1"))
    state.put_slice(builders.endpoint_slice("A-default/kubernetes", "10.2.0.1"))
    blue = replace(VIEW, networks=("blue",))
    for view in (VIEW, blue):
        assert meanings(state.rules_for(view)) == {
            "172.30.7.7": "A-default/kubernetes:p: 10.2.0.1:8080",
            "172.30.0.1": "A-default/kubernetes:p: 10.2.0.1:8080",
        }
    state.take_changed_groups()
    state.put_slice(builders.endpoint_slice("A-default/kubernetes", "10.2.0.2"))
    touched = state.take_changed_groups()
    assert touched == {ServiceGroup("A", EVERY_NETWORK)}
    assert touched & set(blue.groups)
    assert meanings(state.rules_for(replace(VIEW, tenant=None))) == {
        "172.30.0.1": "default/kubernetes:p: REJECT"
    }


def test_guest_sees_its_own_networks_only() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/d", "172.30.0.1"),
        builders.service("A-web/b", "172.30.0.2", network="blue"),
        builders.service("A-web/g", "172.30.0.3", network="green"),
    )

    def seen(*networks: str) -> set[str]:
        rules = state.rules_for(replace(VIEW, networks=networks))
        return {service.service for service in rules.services}

    assert seen() == seen("default") == {"A-web/d"}
    assert seen("blue") == {"A-web/b"}
    assert seen("green", "blue") == {"A-web/b", "A-web/g"}


def test_zone_of_the_view_overrides_the_node() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.node("here", "a"),
        builders.service("A-web/s", "172.30.0.41"),
        builders.endpoint_slice("A-web/s", "10.0.0.1", zones=["a"]),
        builders.endpoint_slice("A-web/s", "10.0.0.2", number=2, zones=["b"]),
    )

    def reached(view: GuestView) -> str:
        return meanings(state.rules_for(view))["172.30.0.41"].partition(": ")[2]

    assert reached(VIEW) == "10.0.0.1:8080"
    assert reached(replace(VIEW, zone="b")) == "10.0.0.2:8080"
    assert reached(replace(VIEW, zone="")) == "10.0.0.1:8080,10.0.0.2:8080"
    state.take_changed_groups()
    state.put_node(builders.node("there", "b"))
    assert state.take_changed_groups() == frozenset()
    state.put_node(builders.node("here", "b"))
    assert state.take_changed_groups() == {DEFAULT}
    assert reached(VIEW) == "10.0.0.2:8080"
    state.remove_node("here")
    assert reached(VIEW) == "10.0.0.1:8080,10.0.0.2:8080"


def test_slices_without_a_service_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(item: objects.EndpointSliceObject) -> SliceInfo | None:
        parsed.append(item.metadata.name)
        return parse_slice(item)

    monkeypatch.setattr("kubeproxy_ext.compute.service_state.parse_slice", counted)
    state = state_of(builders.namespace("A-web", "A"))
    for number in range(200):
        state.put_slice(builders.endpoint_slice("A-web/s", f"10.0.0.{number}"))
    assert parsed == []
    state.put_service(builders.service("A-web/s", "172.30.0.41"))
    assert len(parsed) == 1
    assert "10.0.0.199:8080" in meanings(state.rules_for(VIEW))["172.30.0.41"]
    state.remove_service(("A-web", "s"))
    state.put_slice(builders.endpoint_slice("A-web/s", "10.0.0.1"))
    assert len(parsed) == 1
    assert meanings(state.rules_for(VIEW)) == {}
    state.put_service(builders.service("A-web/s", "172.30.0.41"))
    assert "10.0.0.1:8080" in meanings(state.rules_for(VIEW))["172.30.0.41"]
    state.put_service(builders.service("A-web/s", "None"))
    state.remove_slice(("A-web", "s-1"))
    state.put_service(builders.service("A-web/s", "172.30.0.41"))
    assert "10.0.0.1" not in meanings(state.rules_for(VIEW))["172.30.0.41"]
