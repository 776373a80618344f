# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Service may go down: no address, port or name that is not the tenant's. Pure.

The controls and their reasons are in docs/spec/sync-policy.md#services.
"""

import ipaddress
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import names
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import Network, ServicePolicy, SyncPolicy

_LOAD_BALANCER = "LoadBalancer"
_NODE_PORT = "NodePort"


def refusals(service: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of a Service may not go down."""
    found = RefusalList()
    allowed = policy.services
    spec = found.fields("spec", service.get("spec"))
    own_type = text_of(spec.get("type")) or "ClusterIP"
    if own_type not in allowed.types:
        found.add("spec.type", f"type {shown(own_type)}", "services.types")
    for index, each in enumerate(found.items("spec.externalIPs", spec.get("externalIPs"))):
        if not _is_in(each, allowed.external_cidrs):
            found.add(f"spec.externalIPs[{index}]", f"address {shown(each)}", "services.externalCIDRs")
    address = spec.get("loadBalancerIP")
    if address and not _is_in(address, allowed.load_balancer_cidrs):
        found.add("spec.loadBalancerIP", f"address {shown(address)}", "services.loadBalancerCIDRs")
    own_class = spec.get("loadBalancerClass")
    if own_class is not None and text_of(own_class) not in allowed.load_balancer_classes:
        found.add(
            "spec.loadBalancerClass",
            f"load balancer class {shown(own_class)}",
            "services.loadBalancerClasses",
        )
    if (
        own_type == _LOAD_BALANCER in allowed.types
        and _NODE_PORT not in allowed.types
        and spec.get("allocateLoadBalancerNodePorts") is not False
    ):
        found.add("spec.allocateLoadBalancerNodePorts", "ports of the nodes", "services.types")
    name = spec.get("externalName")
    if name and is_denied_name(text_of(name), allowed):
        found.add("spec.externalName", f"name {shown(name)}", "services.externalNames")
    return found.done()


def is_denied_name(name: str, allowed: ServicePolicy) -> bool:
    """Whether a name leads to what is not the tenant's."""
    plain = name.lower().rstrip(".")
    return names.is_internal(plain, allowed.cluster_domain) and not allowed.external_names.match(plain)


def _is_in(address: Any, networks: tuple[Network, ...]) -> bool:
    if not networks or type(address) is not str:
        return False
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in each for each in networks)
