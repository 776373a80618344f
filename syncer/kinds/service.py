# SPDX-License-Identifier: Apache-2.0
"""Services go down with addresses and node ports of the super cluster. Those addresses come up, and status.

Pure. The tenant's cluster IPs stand in annotations of the super Service. The super cluster's stands in one
of both: the tenant's DNS answers with it. Selectors are translated as the labels of pods are.
"""

from typing import Any

from daemonkit.kube.resources import SERVICES, Key
from syncer.core.objects import Object, SyncedKind, annotations_of, copied, metadata
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Action, Plan, Refusal, Wait
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, plan_stay_by_policy, start
from syncer.kinds.metadata import translate_map
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import services
from tenancy import keys

KIND = SyncedKind(SERVICES, "Service")

# Chosen by each API server for itself: sent with the creation, or chosen there, and then left alone.
# The families follow from the policy, which the tenant decides: the first one is for good, and by a change of
# the policy an API server adds the second one or takes it away.
_SERVER_CHOSEN = ("clusterIP", "clusterIPs", "ipFamilies", "healthCheckNodePort")

# What an API server sets where the field is missing, and an older one of a tenant does not have.
_DEFAULTED = (
    "type",
    "sessionAffinity",
    "ipFamilyPolicy",
    "internalTrafficPolicy",
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
)


class ServiceSync(SameName):
    """Services."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        if changes := services.stays(tenant, view.policy):
            return plan_stay_by_policy(KIND, found, key[0], view, changes)
        address = "" if found is None else str(found.get("spec", {}).get("clusterIP") or "")
        desired = _desired(tenant, found, address, view)
        up = () if found is None else _upward(tenant, found, address, view)
        return plan_down(KIND, tenant, found, desired, view, owned=_owned, up=up, is_answered=True)


def _desired(
    tenant: Object, found: Object | None, address: str, view: View
) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    spec = desired.setdefault("spec", {})
    own_address = spec.get("clusterIP") or ""
    if own_address and own_address != "None":
        annotations = metadata(desired)["annotations"]
        annotations[keys.CLUSTER_IP] = own_address
        others = [str(one) for one in spec.get("clusterIPs") or () if one != own_address]
        # Reserved keys are not removed, so one that is there is corrected.
        if others or (found is not None and keys.CLUSTER_IPS in annotations_of(found)):
            annotations[keys.CLUSTER_IPS] = ",".join([own_address, *others])
        spec.pop("clusterIP")
        spec.pop("clusterIPs", None)
    if address:
        metadata(desired)["annotations"][keys.SUPER_CLUSTER_IP] = address
    spec.pop("healthCheckNodePort", None)
    if isinstance(spec.get("selector"), dict):
        spec["selector"] = translate_map(spec["selector"], view)
    actual = found.get("spec", {}) if found is not None else {}
    if "ports" in spec:
        spec["ports"] = _ports(spec["ports"] or [], actual.get("ports") or [], spec.get("type"))
    for name in _DEFAULTED:
        if name not in spec and name in actual and actual.get("type") == spec.get("type", "ClusterIP"):
            spec[name] = actual[name]
    return services.refusals(tenant, view.policy) or desired


def _ports(ports: list[Any], actual: list[Any], service_type: str | None) -> list[Any]:
    """The ports with the node ports that the super cluster has given to the same protocol and port."""
    keeps = service_type in ("NodePort", "LoadBalancer")
    given = {(each.get("protocol", "TCP"), each.get("port")): each.get("nodePort") for each in actual}
    named = {each["name"]: each.get("nodePort") for each in actual if each.get("name")}
    made: list[Object] = []
    used = set[tuple[str, int]]()  # one number may be two ports, of two protocols
    for each in ports:
        port = {name: value for name, value in each.items() if name != "nodePort"}
        protocol = port.get("protocol", "TCP")
        node_port = given.get((protocol, port.get("port"))) or named.get(port.get("name", ""))
        if keeps and node_port and (protocol, node_port) not in used:
            port["nodePort"] = node_port
            used.add((protocol, node_port))
        made.append(port)
    return made


def _owned(value: Object) -> Object:
    spec = {name: field for name, field in value.get("spec", {}).items() if name not in _SERVER_CHOSEN}
    return {"spec": spec}


def _upward(tenant: Object, found: Object, address: str, view: View) -> tuple[Action, ...]:
    """The actions that show the tenant the address, the keys that go up, and the status."""
    seen: Object = copied(found)
    if address:
        metadata(seen).setdefault("annotations", {})[keys.SUPER_CLUSTER_IP] = address
    return upward.show(KIND, tenant, seen, upward.shown_status("ServiceStatus", found, tenant, view), view)


SYNC: KindSync = ServiceSync()
