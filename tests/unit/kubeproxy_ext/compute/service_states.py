# SPDX-License-Identifier: Apache-2.0
"""A service state of given objects, a guest's view of it, and the meaning of the guest's rules."""

from kubeproxy_ext.compute import objects
from kubeproxy_ext.compute.guest_view import GuestView, ServiceGroup
from kubeproxy_ext.compute.service_state import ServiceState
from ruleset.model import (
    Family,
    GuestRules,
    NoBackendAction,
)
from tests.unit.kubeproxy_ext.compute.builders import put

VIEW = GuestView("A", (), ("10.1.0.2",), "here", None, ("172.30.0.0/16", "fd00:172::/64"), Family.IPV4)

DEFAULT = ServiceGroup("A", "default")


def state_of(*items: objects.AnyObject) -> ServiceState:
    state = ServiceState()
    for item in items:
        put(state, item)
    return state


def meanings(rules: GuestRules) -> dict[str, str]:
    """What becomes of packets to each address: `service port: endpoints` or a refusal."""
    return {
        frontend.ip: f"{frontend.service_port}: "
        + (
            frontend.to.name
            if isinstance(frontend.to, NoBackendAction)
            else ",".join(str(endpoint) for endpoint in frontend.to.endpoints)
        )
        for frontend in rules.frontends()
    }
