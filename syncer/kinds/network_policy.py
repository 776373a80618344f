# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies go down with selectors that select this tenant's pods alone. Nothing comes up. Pure.

A peer by namespaces reaches into the whole super cluster, so the label that the syncer sets on each pod is
added to its podSelector. Blocks of addresses, and rules for all peers, pass as they are.
"""

from typing import Any

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Plan, Refusal, Wait
from syncer.core.view import View
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.metadata import translate_selector
from syncer.kinds.pod.affinity import namespace_selector
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import network_policies
from tenancy import keys

KIND = SyncedKind(Resource("networking.k8s.io", "v1", "networkpolicies"), "NetworkPolicy")


class NetworkPolicySync(SameName):
    """NetworkPolicies."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        return plan_down(KIND, tenant, found, _desired(tenant, view), view, owned=_owned, is_exclusive=True)


def _desired(tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    spec = desired.setdefault("spec", {})
    if isinstance(spec.get("podSelector"), dict):
        spec["podSelector"] = _pods(spec["podSelector"], view)
    for rules, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(rules) or []:
            if isinstance(rule, dict) and rule.get(peers):
                rule[peers] = [_peer(each, view) for each in rule[peers]]
    return network_policies.refusals(tenant, view.policy) or desired


def _peer(peer: Any, view: View) -> Any:
    if not isinstance(peer, dict):
        return peer
    made = dict(peer)
    if isinstance(peer.get("podSelector"), dict):
        made["podSelector"] = _pods(peer["podSelector"], view)
    if isinstance(peer.get("namespaceSelector"), dict):
        made["namespaceSelector"] = namespace_selector(peer["namespaceSelector"], view)
        pods = dict(made.get("podSelector") or {})
        pods["matchLabels"] = (pods.get("matchLabels") or {}) | {keys.CLUSTER: view.tenant.key}
        made["podSelector"] = pods
    return made


def _pods(selector: Object, view: View) -> Object:
    return translate_selector(selector, view)


def _owned(value: Object) -> Object:
    return {"spec": value.get("spec") or {}}


SYNC: KindSync = NetworkPolicySync()
