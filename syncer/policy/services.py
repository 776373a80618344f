# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Service may go down: no address, port or name that is not the tenant's. Pure.

The controls and their reasons are in docs/spec/sync-policy.md#services.
"""

import ipaddress
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Change, Refusal
from syncer.policy import names
from syncer.policy.addresses import Ranges
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import ServicePolicy, SyncPolicy

EXTERNAL_NAME = "ExternalName"
_LOAD_BALANCER = "LoadBalancer"
_NODE_PORT = "NodePort"


def refusals(service: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of a Service may not go down."""
    found = RefusalList()
    allowed = policy.services
    spec = found.fields("spec", service.get("spec"))
    own_type = text_of(spec.get("type")) or "ClusterIP"
    if own_type == EXTERNAL_NAME and own_type not in allowed.types:
        return found.done()  # it stays in the tenant
    if own_type not in allowed.types:
        found.add("spec.type", f"type {shown(own_type)}", "services.types")
    external = Ranges(allowed.external_cidrs)
    for index, each in enumerate(found.items("spec.externalIPs", spec.get("externalIPs"))):
        if not _is_in(each, external):
            found.add(f"spec.externalIPs[{index}]", f"address {shown(each)}", "services.externalCIDRs")
    address = spec.get("loadBalancerIP")
    if address and not _is_in(address, Ranges(allowed.load_balancer_cidrs)):
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


def stays(service: Object, policy: SyncPolicy) -> tuple[Change, ...]:
    """Why a Service stays in the tenant whole, whose DNS answers its name; none if it does not.

    Its name may mean anything later: an ingress controller of the super cluster that follows it resolves it
    then, with its own resolver.
    """
    spec = service.get("spec")
    if type(spec) is not dict or spec.get("type") != EXTERNAL_NAME or EXTERNAL_NAME in policy.services.types:
        return ()
    return (_stays("spec.type", "an ExternalName"),)


def slice_stays(endpoint_slice: Object, policy: SyncPolicy) -> tuple[Change, ...]:
    """The same of an EndpointSlice with names in the place of addresses."""
    if endpoint_slice.get("addressType") != "FQDN" or EXTERNAL_NAME in policy.services.types:
        return ()
    return (_stays("addressType", "FQDN"),)


def _stays(path: str, what: str) -> Change:
    how = "SyncPolicy field spec.services.types does not allow ExternalName below"
    return Change(path, f"{what} stays in this cluster, whose DNS answers it: {how}")


def is_denied_name(name: str, allowed: ServicePolicy) -> bool:
    """Whether a name leads to what is not the tenant's."""
    plain = name.lower().rstrip(".")
    return names.is_internal(plain, allowed.cluster_domain) and not allowed.external_names.match(plain)


def _is_in(address: Any, ranges: Ranges) -> bool:
    if type(address) is not str:
        return False
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return found in ranges
