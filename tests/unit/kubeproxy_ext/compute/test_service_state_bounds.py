# SPDX-License-Identifier: Apache-2.0
"""Services beyond the rule limit are left out and reported."""

from msgspec import structs

from kubeproxy_ext.compute import objects
from tests.unit.kubeproxy_ext.compute import builders
from tests.unit.kubeproxy_ext.compute.builders import put
from tests.unit.kubeproxy_ext.compute.service_states import VIEW, meanings, state_of


def test_service_beyond_the_rule_limit_is_never_computed() -> None:
    ports = [objects.ServicePort(f"p{number}", "TCP", number) for number in range(1, 5001)]
    huge = builders.service("A-web/huge", "172.30.0.42")
    wide = replace_spec(huge, ports=ports, external_ips=[f"11.0.{n // 256}.{n % 256}" for n in range(5000)])
    many = builders.endpoint_slice("A-web/huge", *(f"10.2.{n // 256}.{n % 256}" for n in range(1000)))
    deep = structs.replace(many, ports=[objects.SlicePort(port.name, "TCP", port.port) for port in ports])
    state = state_of(
        builders.namespace("A-web", "A", "web"),
        builders.service("A-web/s", "172.30.0.41"),
        builders.endpoint_slice("A-web/s", "10.0.0.1"),
        wide,
    )
    expected = {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}
    problem = "all of it: with it a guest would have more than 100000 rules"
    assert meanings(state.rules_for(VIEW)) == expected
    assert [(one.service, one.text) for one in state.problems()] == [("huge", problem)]
    put(state, replace_spec(huge, ports=ports))
    put(state, deep)
    put(state, builders.endpoint_slice("A-web/huge", "10.2.0.1"))
    assert meanings(state.rules_for(VIEW)).keys() == {"172.30.0.41", "172.30.0.42"}
    put(state, deep)
    assert meanings(state.rules_for(VIEW)) == expected
    assert [(one.service, one.text) for one in state.problems()] == [("huge", problem)]
    put(state, huge)
    put(state, many)
    assert meanings(state.rules_for(VIEW)).keys() == {"172.30.0.41", "172.30.0.42"}
    assert state.problems() == ()


def test_endpoints_with_affinity_have_a_limit_of_their_own() -> None:
    """The kernel takes 50 s for 30 000 of them, and the guest would be without any rules."""
    ports = [objects.ServicePort(f"p{number}", "TCP", number) for number in range(1, 7)]
    sticky = replace_spec(
        builders.service("A-web/huge", "172.30.0.42"), ports=ports, session_affinity="ClientIP"
    )
    many = [f"10.2.{n // 256}.{n % 256}" for n in range(1000)]
    state = state_of(
        builders.namespace("A-web", "A", "web"),
        builders.service("A-web/s", "172.30.0.41"),
        builders.endpoint_slice("A-web/s", "10.0.0.1"),
        sticky,
    )
    for number in range(5):
        made = builders.endpoint_slice("A-web/huge", *many, number=number)
        put(
            state,
            structs.replace(made, ports=[objects.SlicePort(one.name, "TCP", one.port) for one in ports]),
        )
    assert meanings(state.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}
    sets = "10000 endpoints with client affinity and ports with several endpoints"
    problem = f"all of it: with it a guest would have more than {sets}"
    assert [(one.service, one.text) for one in state.problems()] == [("huge", problem)]
    put(state, replace_spec(sticky, session_affinity="None"))
    assert {"172.30.0.41", "172.30.0.42"} <= meanings(state.rules_for(VIEW)).keys()
    assert state.problems() == ()


def replace_spec(item: objects.ServiceObject, **fields: object) -> objects.ServiceObject:
    return structs.replace(item, spec=structs.replace(item.spec, **fields))
