# SPDX-License-Identifier: Apache-2.0
"""Tenants are told of their own objects in their own names."""

from kubeproxy_ext.compute.guest_view import GuestView, ObjectProblem
from kubeproxy_ext.compute.service_state import ServiceState
from ruleset.model import Family
from tests.unit.kubeproxy_ext.compute import feed


def test_problems_use_the_tenants_names() -> None:
    world = ServiceState()
    world.put_namespace(feed.namespace("t-web", "t", "web"))
    world.put_namespace(feed.namespace("t-db", "t", "db"))
    world.put_service(feed.service("t-web/s", "172.30.0.1", external=["1.2.3"], created="2026-01-01"))
    world.put_service(feed.service("t-db/s", "172.30.0.2", external=["172.30.0.1"], created="2025-01-01"))
    world.put_slice(feed.endpoint_slice("t-web/s", "10.0.0.0.1"))
    world.put_service(feed.service("nobody/s", "172.30.0.3", external=["x"]))
    malformed = (
        ObjectProblem("t", "web", "s", "EndpointSlice s-1: endpoints: '10.0.0.0.1' is not an ipv4 address"),
        ObjectProblem("t", "web", "s", "spec.externalIPs: '1.2.3' is not an IP address"),
    )
    assert world.problems() == malformed
    world.rules_for(GuestView("t", (), ("10.1.0.2",), "here", "", (), Family.IPV4))
    taken = ObjectProblem("t", "db", "s", "172.30.0.1 port 80/tcp belongs to Service web/s")
    assert world.problems() == (taken, *malformed)
