# SPDX-License-Identifier: Apache-2.0
"""Which Service gets an address that several claim."""

from tests.unit.kubeproxy_ext.compute import builders
from tests.unit.kubeproxy_ext.compute.service_states import VIEW, meanings, state_of


def test_conflicting_address_moves_when_its_service_ends() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/old", "172.30.0.1", external=["1.2.3.4"], created="2025"),
        builders.service("A-web/new", "172.30.0.2", external=["1.2.3.4"], created="2026"),
    )
    assert meanings(state.rules_for(VIEW))["1.2.3.4"] == "A-web/old:p: REJECT"
    state.remove_service(("A-web", "old"))
    assert meanings(state.rules_for(VIEW)) == {
        "172.30.0.2": "A-web/new:p: REJECT",
        "1.2.3.4": "A-web/new:p: REJECT",
    }


def test_service_without_won_addresses_is_left_out() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/one", "172.30.0.1", created="2025"),
        builders.service("A-web/two", "172.30.0.1", created="2026"),
    )
    assert [service.service for service in state.rules_for(VIEW).services] == ["A-web/one"]


def test_swapped_addresses_do_not_conflict() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/one", "172.30.0.1", external=["1.1.1.1"], created="2025"),
        builders.service("A-web/two", "172.30.0.2", external=["2.2.2.2"], created="2026"),
    )
    state.rules_for(VIEW)
    state.put_service(builders.service("A-web/two", "172.30.0.2", external=["1.1.1.1"], created="2026"))
    assert meanings(state.rules_for(VIEW))["1.1.1.1"] == "A-web/one:p: REJECT"
    state.put_service(builders.service("A-web/one", "172.30.0.1", external=["2.2.2.2"], created="2025"))
    assert meanings(state.rules_for(VIEW)) == {
        "172.30.0.1": "A-web/one:p: REJECT",
        "2.2.2.2": "A-web/one:p: REJECT",
        "172.30.0.2": "A-web/two:p: REJECT",
        "1.1.1.1": "A-web/two:p: REJECT",
    }


def test_services_with_address_are_of_one_tenant() -> None:
    state = state_of(
        builders.namespace("a-x", "a"),
        builders.namespace("b-x", "b"),
        builders.service("a-x/blue", "10.96.0.1", own_ip="10.32.0.1", network="blue"),
        builders.service("a-x/plain", "10.96.0.2", external=["10.32.0.1"]),
        builders.service("b-x/other", "10.96.0.3", own_ip="10.32.0.1"),
    )
    assert state.services_with_address("a", "10.32.0.1") == (("a-x/blue", "blue"), ("a-x/plain", "default"))
    assert state.services_with_address("a", "10.96.0.3") == ()
    assert state.services_with_address("b", "10.32.0.1") == (("b-x/other", "default"),)
