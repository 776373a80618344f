# SPDX-License-Identifier: Apache-2.0
"""Ingresses go down, their status comes up. Pure."""

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Action, Plan, Refusal, Wait
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy import ingresses

KIND = SyncedKind(Resource("networking.k8s.io", "v1", "ingresses"), "Ingress")


class IngressSync(SameName):
    """Ingresses."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        up = () if found is None else _upward(tenant, found, view)
        return plan_down(KIND, tenant, found, _desired(tenant, view), view, owned=_owned, up=up)


def _desired(tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    refused = ingresses.refusals(tenant, view.policy)
    return refused if refused and not isinstance(desired, Wait) else desired


def _upward(tenant: Object, found: Object, view: View) -> tuple[Action, ...]:
    status = upward.shown_status("IngressStatus", found, tenant, view)
    return upward.show(KIND, tenant, found, status, view)


def _owned(value: Object) -> Object:
    return {"spec": value.get("spec") or {}}


SYNC: KindSync = IngressSync()
