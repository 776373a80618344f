# SPDX-License-Identifier: Apache-2.0
"""Whose an address is that several Services claim."""

from tests.unit.kubeproxy_ext.compute import feed
from tests.unit.kubeproxy_ext.compute.states import VIEW, meanings, world_of


def test_conflicting_address_moves_when_its_owner_goes() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/old", "172.30.0.1", external=["1.2.3.4"], created="2025"),
        feed.service("A-web/new", "172.30.0.2", external=["1.2.3.4"], created="2026"),
    )
    assert meanings(world.rules_for(VIEW))["1.2.3.4"] == "A-web/old:p: REJECT"
    world.remove_service(("A-web", "old"))
    assert meanings(world.rules_for(VIEW)) == {
        "172.30.0.2": "A-web/new:p: REJECT",
        "1.2.3.4": "A-web/new:p: REJECT",
    }


def test_service_without_won_addresses_is_left_out() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/one", "172.30.0.1", created="2025"),
        feed.service("A-web/two", "172.30.0.1", created="2026"),
    )
    assert [service.service for service in world.rules_for(VIEW).services] == ["A-web/one"]


def test_swapped_addresses_do_not_conflict() -> None:
    world = world_of(
        feed.namespace("A-web", "A"),
        feed.service("A-web/one", "172.30.0.1", external=["1.1.1.1"], created="2025"),
        feed.service("A-web/two", "172.30.0.2", external=["2.2.2.2"], created="2026"),
    )
    world.rules_for(VIEW)
    world.put_service(feed.service("A-web/two", "172.30.0.2", external=["1.1.1.1"], created="2026"))
    assert meanings(world.rules_for(VIEW))["1.1.1.1"] == "A-web/one:p: REJECT"
    world.put_service(feed.service("A-web/one", "172.30.0.1", external=["2.2.2.2"], created="2025"))
    assert meanings(world.rules_for(VIEW)) == {
        "172.30.0.1": "A-web/one:p: REJECT",
        "2.2.2.2": "A-web/one:p: REJECT",
        "172.30.0.2": "A-web/two:p: REJECT",
        "1.1.1.1": "A-web/two:p: REJECT",
    }


def test_services_with_address_are_of_one_tenant() -> None:
    world = world_of(
        feed.namespace("a-x", "a"),
        feed.namespace("b-x", "b"),
        feed.service("a-x/blue", "10.96.0.1", own_ip="10.32.0.1", network="blue"),
        feed.service("a-x/plain", "10.96.0.2", external=["10.32.0.1"]),
        feed.service("b-x/other", "10.96.0.3", own_ip="10.32.0.1"),
    )
    assert world.services_with_address("a", "10.32.0.1") == (("a-x/blue", "blue"), ("a-x/plain", "default"))
    assert world.services_with_address("a", "10.96.0.3") == ()
    assert world.services_with_address("b", "10.32.0.1") == (("b-x/other", "default"),)
