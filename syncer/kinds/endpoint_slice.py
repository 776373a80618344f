# SPDX-License-Identifier: Apache-2.0
"""EndpointSlices go down that the tenant wrote itself. Nothing comes up. Pure.

Those of controllers have a twin in the super cluster already: its own controllers make them of the Service's
selector, or of the Endpoints that go down.
"""

from daemonkit.kube.resources import ENDPOINT_SLICES, Key
from syncer.core.objects import Object, SyncedKind, labels_of, metadata, namespace_of
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Change, Delete, Plan, Refusal, Wait
from syncer.core.unknown import if_known
from syncer.core.view import View
from syncer.kinds.downward import plan_down, plan_stay, plan_stay_by_policy, start
from syncer.kinds.endpoints import (
    HOLDS_CHANGES,
    endpoint_refusals,
    has_selector,
    plan_end,
    plan_foreign,
    pod_of,
    target_of,
    without_refused,
)
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import services

KIND = SyncedKind(ENDPOINT_SLICES, "EndpointSlice")
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "vc-syncer.vcnode.io"
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


class EndpointSliceSync(SameName):
    """EndpointSlices. They hang on their Service, its Endpoints, and the pods that they name."""

    kind = KIND
    scope = Scope.NAMESPACED
    holds_changes = HOLDS_CHANGES

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if found is not None and _is_of_controller(found):
            found = None
        if tenant is None or not _is_of_author(tenant):
            return NOTHING if found is None else plan_end(KIND, found, key[0], view)
        if changes := _has_twin(tenant, view):
            return plan_stay(KIND, found, key[0], view, changes)
        if changes := services.slice_stays(tenant, view.policy):
            return plan_stay_by_policy(KIND, found, key[0], view, changes)
        plan = plan_down(KIND, tenant, found, _desired(tenant, view), view, owned=_owned, is_exclusive=True)
        return without_refused(plan, KIND, tenant, found, view)

    def plan_unreadable(self, key: Key, found: Object, view: View) -> tuple[Delete, ...]:
        return () if _is_of_controller(found) else plan_foreign(KIND, found, key[0], view)


def _is_of_controller(found: Object) -> bool:
    """Whether a controller of the super cluster has a slice.

    The mirroring controller copies an Endpoints' annotations, which are ours, to its own.
    """
    return labels_of(found).get(MANAGED_BY) in _CONTROLLERS


def _is_of_author(tenant: Object) -> bool:
    """Whether a slice belongs to a Service, and no controller of the tenant's wrote it."""
    labels = labels_of(tenant)
    return bool(labels.get(SERVICE_NAME)) and labels.get(MANAGED_BY) not in _CONTROLLERS


def _has_twin(tenant: Object, view: View) -> tuple[Change, ...]:
    """What in the super cluster makes slices of the same Service, so that this one stays."""
    name = labels_of(tenant)[SERVICE_NAME]
    path = f"metadata.labels[{SERVICE_NAME}]"
    service = if_known(view.in_tenant("Service", namespace_of(tenant), name))
    if service is not None and has_selector(service):
        return (Change(path, f"stays in this cluster: Service {name} has a selector, and leads to its pods"),)
    if if_known(view.in_tenant("Endpoints", namespace_of(tenant), name)) is not None:
        return (Change(path, f"stays in this cluster: Endpoints {name} have the addresses of that Service"),)
    return ()


def _desired(tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    own = {SERVICE_NAME: labels_of(tenant)[SERVICE_NAME], MANAGED_BY: MANAGER}
    metadata(desired)["labels"] |= own
    if desired.get("endpoints"):
        desired["endpoints"] = [_endpoint(each, namespace_of(tenant), view) for each in desired["endpoints"]]
    return endpoint_refusals(tenant, view) or desired


def _endpoint(endpoint: Object, namespace: str, view: View) -> Object:
    """Pod and node as the super cluster has them; without them where the pod is not the tenant's."""
    made = {name: value for name, value in endpoint.items() if name not in ("targetRef", "nodeName")}
    target = endpoint.get("targetRef")
    pod = pod_of(target, namespace, view)
    if pod is not None and target is not None:
        made["targetRef"] = target_of(pod, target)
        if pod.node:
            made["nodeName"] = pod.node
    return made


def _owned(value: Object) -> Object:
    return {name: value[name] for name in ("endpoints", "ports") if value.get(name)}


SYNC: KindSync = EndpointSliceSync()
