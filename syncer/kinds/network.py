# SPDX-License-Identifier: Apache-2.0
"""Networks go down with their status, for dnsconfig on the nodes. Nothing comes up. Pure.

In a tenant a Network is of the whole cluster. In the super cluster it stands in the super namespace of the
tenant's kube-system, beside the Services of the DNS servers. While the tenant's is being deleted the super
object stays: its phase says so, and pods that use the network still end.
"""

from daemonkit.kube.resources import Key, Resource
from syncer.core.field_ownership import with_foreign_fields
from syncer.core.objects import (
    Object,
    SyncedKind,
    merge_patch,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Patch, Plan, Side
from syncer.core.view import View
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import SYSTEM_NAMESPACE, KindSync, SameName, Scope
from syncer.kinds.upward import status_of
from syncer.policy import networks

KIND = SyncedKind(Resource("arktos.futurewei.com", "v1", "networks"), "Network")
"""As it is in the super cluster: in a namespace."""


class NetworkSync(SameName):
    """Networks."""

    kind = KIND
    scope = Scope.SYSTEM

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, SYSTEM_NAMESPACE, view)
        tenant = {**tenant, "metadata": {**metadata(tenant), "namespace": SYSTEM_NAMESPACE}}
        desired = start(KIND, tenant, view)
        if isinstance(desired, dict):
            desired = networks.refusals(tenant, view.policy) or desired
        more = () if found is None else _status_down(tenant, found)
        # An API server drops the status of a creation, so it follows in a second plan.
        return plan_down(
            KIND, tenant, found, desired, view, owned=_owned, more=more, is_answered=bool(status_of(tenant))
        )


def _status_down(tenant: Object, found: Object) -> tuple[Patch, ...]:
    actual = {"status": status_of(found)}
    changes = merge_patch(actual, with_foreign_fields({"status": status_of(tenant)}, actual, found))
    if not changes:
        return ()
    where = namespace_of(found), name_of(found), uid_of(found)
    return (Patch(Side.SUPER, KIND, *where, changes, subresource="status"),)


def _owned(value: Object) -> Object:
    return {"spec": value.get("spec") or {}}


SYNC: KindSync = NetworkSync()
