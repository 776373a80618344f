# SPDX-License-Identifier: Apache-2.0
"""Endpoints go down where no controller of the super cluster makes them. Nothing comes up. Pure.

That is for Services without a selector, and where there is no Service. The super cluster's mirroring
controller makes the EndpointSlices of them.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import Any

from msgspec.structs import replace

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind, name_of, namespace_of, uid_of
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Delete, Half, Patch, Plan, Refusal, Side, Wait
from syncer.core.unknown import if_known
from syncer.core.view import PodFacts, View
from syncer.kinds.downward import owns, plan_down, plan_removal, refused_deletions, start
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import endpoints as policy

KIND = SyncedKind(Resource("", "v1", "endpoints"), "Endpoints")

WAITS_FOR_API_SERVER = "ApiServerNotKnown"

# What they lead to may be another tenant's by now: a change of them takes addresses away, and never waits.
# What they may have besides is judged by addresses that are known to be the tenant's.
HOLDS_CHANGES = False


class EndpointsSync(SameName):
    """Endpoints. Whether they go down hangs on their Service and on the pods that they name."""

    kind = KIND
    scope = Scope.NAMESPACED
    holds_changes = HOLDS_CHANGES

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_end(KIND, found, key[0], view)
        service = if_known(view.in_tenant("Service", *key))  # else only what is there loses addresses
        if service is not None and has_selector(service):
            if found is None or not owns(found, view, key[0]):
                return NOTHING
            below = if_known(view.in_super("Service", *key))
            if below is not None and has_selector(below):
                return NOTHING  # the super cluster's own controller has them, also if they were ours before
            # The selector is on its way, or does not go down: until then no controller of the super cluster
            # removes addresses that have become another tenant's.
        # A Service that lost its selector leaves Endpoints of the super cluster's controller behind.
        adopts = service is not None and found is not None
        plan = plan_down(
            KIND, tenant, found, _desired(tenant, view), view, owned=_owned, adopts=adopts, is_exclusive=True
        )
        return without_refused(plan, KIND, tenant, found, view)

    def plan_unreadable(self, key: Key, found: Object, view: View) -> tuple[Delete, ...]:
        return plan_foreign(KIND, found, key[0], view)


def has_selector(service: Object) -> bool:
    return bool(service.get("spec", {}).get("selector"))


def plan_end(kind: SyncedKind, found: Object, namespace: str, view: View) -> Plan:
    """The plan for a super object whose tenant object is gone.

    Its deletion may be held until a person releases it, and the pods that it leads to end meanwhile: once it
    leads to what may be another tenant's, it goes all the same.
    """
    plan = plan_removal(kind, found, namespace, view)
    foreign = plan_foreign(kind, found, namespace, view)
    return Plan(Half(foreign)) if foreign else plan


def plan_foreign(kind: SyncedKind, found: Object, namespace: str, view: View) -> tuple[Delete, ...]:
    """The deletion of a super object that leads to what may be another tenant's, judged by itself.

    For where the tenant's object says nothing of it: it is gone, or it or its namespace cannot be read.
    While no policy is known `syncer.work.endpoint_check` judges it.
    """
    if view.policy_wait is not None:
        return ()
    deletions = refused_deletions(kind, found, namespace, view)
    if not deletions:
        return ()
    meta = {"namespace": namespace, "name": name_of(found)}
    return deletions if endpoint_refusals({**found, "metadata": meta}, view) else ()


def pod_of(target: Any, namespace: str, view: View) -> PodFacts | None:
    """The super pod of a `targetRef` that names one of the tenant's pods in this namespace."""
    if not isinstance(target, dict) or target.get("kind") != "Pod":
        return None
    if target.get("namespace") not in (None, "", namespace):
        return None
    return view.super_pod(namespace, str(target.get("name", "")))


def target_of(pod: PodFacts, target: Object) -> Object:
    """The `targetRef` in the super cluster."""
    kept = {name: value for name, value in target.items() if name in ("kind", "name", "apiVersion")}
    return kept | {"namespace": pod.namespace, "uid": pod.uid}


def endpoint_refusals(tenant: Object, view: View) -> tuple[Refusal, ...]:
    """What the tenant's policy has against Endpoints or an EndpointSlice.

    Own are the addresses of the tenant's pods: of those that it names, and where it names none, of all in its
    namespace.
    """
    own: set[str] = set()
    for target in _targets(tenant):
        pod = pod_of(target, namespace_of(tenant), view)
        if pod is not None:
            own.update(pod.addresses)
    api_server = view.api_server_addresses() if namespace_of(tenant) == "default" else ()
    found = _judged(tenant, own, api_server, view)
    if not found:
        return ()
    # Asked for only then: who asks is planned again at each change of a pod there.
    everyone = _Either(own, view.pod_addresses(namespace_of(tenant)))
    return _judged(tenant, everyone, api_server, view)


def _judged(
    tenant: Object, own: Collection[str], api_server: Collection[str], view: View
) -> tuple[Refusal, ...]:
    held = view.others_hold
    return policy.refusals(tenant, view.policy, own, api_server, view.cluster_networks, held)


class _Either(Collection[str]):
    """Two collections as one, without a copy: a namespace may have thousands of pods."""

    def __init__(self, one: Collection[str], other: Collection[str]) -> None:
        self._both = (one, other)

    def __contains__(self, address: object) -> bool:
        return any(address in each for each in self._both)

    def __iter__(self) -> Iterator[str]:
        return itertools.chain(*self._both)

    def __len__(self) -> int:
        return sum(map(len, self._both))


def without_refused(plan: Plan, kind: SyncedKind, tenant: Object, found: Object | None, view: View) -> Plan:
    """The plan, with the super object removed if the tenant's may not be there any more.

    What it led to may have become another tenant's. Where the plan has no other for it, as while the
    namespace cannot be read, or its deletion may be held, the super object is judged by itself.
    """
    if view.policy_wait is not None:
        return _not_judged(plan, kind, tenant, found, view)
    namespace = namespace_of(tenant)
    if not plan.down.refusals:
        makes_no_other = plan.down.wait is not None or any(isinstance(each, Delete) for each in plan.actions)
        foreign = plan_foreign(kind, found, namespace, view) if found is not None and makes_no_other else ()
        return replace(plan, down=replace(plan.down, actions=foreign)) if foreign else plan
    if policy.is_of_api_server(tenant):
        # Who knows its addresses may hear of a new one later than the tenant publishes it.
        first = plan.down.refusals[0]
        wait = Wait(WAITS_FOR_API_SERVER, f"{first.path}: {first.message}")
        plan = replace(plan, down=replace(plan.down, refusals=(), wait=wait))
    if found is None:
        return plan
    deletions = refused_deletions(kind, found, namespace, view)
    return replace(plan, down=replace(plan.down, actions=(*plan.down.actions, *deletions)))


def _not_judged(plan: Plan, kind: SyncedKind, tenant: Object, found: Object | None, view: View) -> Plan:
    """The plan while no policy is known: the super object loses what the tenant's has not any more."""
    down = plan.down
    is_ending = any(isinstance(each, Delete) for each in down.actions)
    if is_ending or not (down.actions or down.refusals):
        return plan
    actions: tuple[Patch, ...] = ()
    if found is not None and refused_deletions(kind, found, namespace_of(tenant), view):
        where = namespace_of(found), name_of(found), uid_of(found)
        body = policy.removal_patch(found, tenant)
        actions = (Patch(Side.SUPER, kind, *where, body),) if body else ()
    return replace(plan, down=Half(actions, wait=view.policy_wait))


def _targets(tenant: Object) -> Iterator[Any]:
    for endpoint in tenant.get("endpoints") or ():
        yield endpoint.get("targetRef")
    for subset in tenant.get("subsets") or ():
        for field in ("addresses", "notReadyAddresses"):
            for address in subset.get(field) or ():
                yield address.get("targetRef")


def _desired(tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    for subset in desired.get("subsets") or []:
        for field in ("addresses", "notReadyAddresses"):
            if subset.get(field):
                subset[field] = [_address(each, namespace_of(tenant), view) for each in subset[field]]
    return endpoint_refusals(tenant, view) or desired


def _address(address: Object, namespace: str, view: View) -> Object:
    """Pod and node as the super cluster has them; without them where the pod is not the tenant's."""
    made = {name: value for name, value in address.items() if name not in ("targetRef", "nodeName")}
    target = address.get("targetRef")
    pod = pod_of(target, namespace, view)
    if pod is not None and target is not None:
        made["targetRef"] = target_of(pod, target)
        if pod.node:
            made["nodeName"] = pod.node
    return made


def _owned(value: Object) -> Object:
    return {"subsets": value["subsets"]} if value.get("subsets") else {}


SYNC: KindSync = EndpointsSync()
