# SPDX-License-Identifier: Apache-2.0
"""What a change computes, which groups it changes, and what stays the same object."""

import gc
from dataclasses import replace

from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import ServiceGroup
from ruleset.model import (
    Endpoint,
)
from tests.unit.kubeproxy_ext.compute import builders
from tests.unit.kubeproxy_ext.compute.builders import put
from tests.unit.kubeproxy_ext.compute.service_states import DEFAULT, VIEW, meanings, state_of


def test_repeated_objects_change_no_group() -> None:
    items = (
        builders.namespace("A-web", "A"),
        builders.service("A-web/s", "172.30.0.41"),
        builders.endpoint_slice("A-web/s", "10.0.0.1"),
    )
    state = state_of(*items)
    result = state.result_for(VIEW)
    state.take_changed_groups()
    for item in items:
        put(state, item)
    state.put_service(builders.service("A-web/s", "172.30.0.41", labels={"app": "x"}))
    state.put_slice(builders.endpoint_slice("A-web/s", "10.0.0.1", annotations={"leader": "me"}))
    assert state.take_changed_groups() == frozenset()
    assert state.result_for(VIEW) is result


def test_endpoints_moving_between_slices_change_no_group() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/s", "172.30.0.41"),
        builders.endpoint_slice("A-web/s", "10.0.0.1", "10.0.0.2"),
    )
    result = state.result_for(VIEW)
    state.take_changed_groups()
    state.put_slice(builders.endpoint_slice("A-web/s", "10.0.0.1"))
    state.put_slice(builders.endpoint_slice("A-web/s", "10.0.0.2", number=2))
    assert state.take_changed_groups() == frozenset()
    assert state.result_for(VIEW) is result


def test_endpoint_change_recomputes_one_service() -> None:
    services = [builders.service(f"A-web/s{n}", f"172.30.0.{n}") for n in range(1, 6)]
    slices = [builders.endpoint_slice(f"A-web/s{n}", f"10.0.0.{n}") for n in range(1, 6)]
    state = state_of(builders.namespace("A-web", "A"), *services, *slices)
    before = state.rules_for(VIEW)
    state.take_changed_groups()
    state.put_slice(builders.endpoint_slice("A-web/s3", "10.0.9.9"))
    assert state.take_changed_groups() == {DEFAULT}
    after = state.rules_for(VIEW)
    pairs = zip(before.services, after.services, strict=True)
    assert [one.service for one, other in pairs if one is not other] == ["A-web/s3"]


def test_change_of_serving_changes_the_group() -> None:
    state = state_of(
        builders.namespace("A-web", "A"), builders.service("A-web/s", "172.30.0.41", protocol="UDP")
    )
    one = builders.endpoint_slice("A-web/s", protocol="UDP")

    def endpoints(*, second_serves: bool) -> objects.EndpointSliceObject:
        return objects.EndpointSliceObject(
            metadata=one.metadata,
            address_type="IPv4",
            ports=one.ports,
            endpoints=[
                objects.SliceEndpoint(addresses=["10.0.0.1"]),
                objects.SliceEndpoint(
                    addresses=["10.0.0.2"],
                    conditions=objects.Conditions(ready=False, serving=second_serves),
                ),
            ],
        )

    state.put_slice(endpoints(second_serves=True))
    before = state.result_for(VIEW)
    state.take_changed_groups()
    state.put_slice(endpoints(second_serves=False))
    assert state.take_changed_groups() == {DEFAULT}
    after = state.result_for(VIEW)
    assert after.rules == before.rules
    assert [one.endpoints for one in before.serving] == [
        (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080))
    ]
    assert [one.endpoints for one in after.serving] == [(Endpoint("10.0.0.1", 8080),)]


def test_change_of_policy_changes_the_group() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/s", "172.30.0.41"),
        builders.endpoint_slice("A-web/s", "10.0.0.1", node="there"),
    )
    state.rules_for(VIEW)
    state.take_changed_groups()
    state.put_service(builders.service("A-web/s", "172.30.0.41", internal="Local"))
    assert state.take_changed_groups() == {DEFAULT}
    assert meanings(state.rules_for(VIEW)) == {"172.30.0.41": "A-web/s:p: DROP"}
    # Also for a location that no guest had before the change.
    other = meanings(state.rules_for(replace(VIEW, node="there")))
    assert other == {"172.30.0.41": "A-web/s:p: 10.0.0.1:8080"}


def test_namespace_owner_change_affects_both_groups() -> None:
    state = state_of(builders.namespace("A-web", "A"), builders.service("A-web/s", "172.30.0.1"))
    theirs = replace(VIEW, tenant="B")
    assert [len(state.rules_for(view).services) for view in (VIEW, theirs)] == [1, 0]
    state.take_changed_groups()
    state.put_namespace(builders.namespace("A-web", "B"))
    assert state.take_changed_groups() == {DEFAULT, ServiceGroup("B", "default")}
    assert [len(state.rules_for(view).services) for view in (VIEW, theirs)] == [0, 1]


def test_guests_with_equal_source_matches_share_results() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.service("A-web/s", "172.30.0.41", balancer=["1.2.3.4"], ranges=["10.1.0.0/24"]),
        builders.endpoint_slice("A-web/s", "10.0.0.1"),
    )
    near, near_too, far = (replace(VIEW, pod_ips=(ip,)) for ip in ("10.1.0.2", "10.1.0.3", "10.9.0.2"))
    results = [state.result_for(view) for view in (near, near_too, far)]
    assert results[0] is results[1]
    assert state.group_key(near) == state.group_key(near_too) != state.group_key(far)
    assert meanings(results[0].rules)["1.2.3.4"] == "A-web/s:p: 10.0.0.1:8080"
    assert meanings(results[2].rules)["1.2.3.4"] == "A-web/s:p: DROP"


def test_unused_results_are_collected() -> None:
    state = state_of(builders.namespace("A-web", "A"), builders.service("A-web/s", "172.30.0.41"))
    rules = id(state.result_for(VIEW))
    gc.collect()
    assert len(state._results) == 0  # noqa: SLF001 - what is kept cannot be seen from outside
    assert rules


def test_dropped_results_are_computed_again() -> None:
    state = state_of(
        builders.namespace("A-web", "A"),
        builders.namespace("B-web", "B"),
        builders.service("A-web/s", "172.30.0.1"),
        builders.service("B-web/s", "172.30.0.1"),
    )
    theirs = replace(VIEW, tenant="B")
    before = (state.rules_for(VIEW), state.rules_for(theirs))
    state.keep_only(VIEW.groups)
    assert len(state._compiled) == 1  # noqa: SLF001 - what is kept cannot be seen from outside
    assert (state.rules_for(VIEW), state.rules_for(theirs)) == before
