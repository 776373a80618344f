# SPDX-License-Identifier: Apache-2.0
"""Problems of objects are in their tenants' names."""

from kubeproxy_ext.compute.guest_view import GuestView, ObjectProblem
from kubeproxy_ext.compute.service_state import ServiceState
from ruleset.model import Family
from tests.unit.kubeproxy_ext.compute import builders


def test_problems_use_the_tenants_names() -> None:
    state = ServiceState()
    state.put_namespace(builders.namespace("t-web", "t", "web"))
    state.put_namespace(builders.namespace("t-db", "t", "db"))
    state.put_service(builders.service("t-web/s", "172.30.0.1", external=["1.2.3"], created="2026-01-01"))
    state.put_service(builders.service("t-db/s", "172.30.0.2", external=["172.30.0.1"], created="2025-01-01"))
    state.put_slice(builders.endpoint_slice("t-web/s", "10.0.0.0.1"))
    state.put_service(builders.service("nobody/s", "172.30.0.3", external=["x"]))
    malformed = (
        ObjectProblem("t", "web", "s", "EndpointSlice s-1: endpoints: '10.0.0.0.1' is not an ipv4 address"),
        ObjectProblem("t", "web", "s", "spec.externalIPs: '1.2.3' is not an IP address"),
    )
    assert state.problems() == malformed
    state.rules_for(GuestView("t", (), ("10.1.0.2",), "here", "", (), Family.IPV4))
    taken = ObjectProblem("t", "db", "s", "172.30.0.1 port 80/tcp belongs to Service web/s")
    assert state.problems() == (taken, *malformed)
