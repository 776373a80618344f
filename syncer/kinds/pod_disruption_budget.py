# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets go down as a number of pods that must stay. Pure.

Super pods have no controllers, so the super cluster cannot tell how many pods `maxUnavailable` or a share
leaves: it would allow no disruption at all. The tenant's disruption controller knows: its `desiredHealthy`
goes down as `minAvailable`. The status is that controller's own: nothing comes up, or both would write it.
"""

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind, metadata
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Plan, Refusal, Wait
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.metadata import translate_selector
from syncer.kinds.port import KindSync, SameName, Scope

KIND = SyncedKind(Resource("policy", "v1", "poddisruptionbudgets"), "PodDisruptionBudget")
WAITS_FOR_STATUS = "BudgetNotObserved"


class PodDisruptionBudgetSync(SameName):
    """PodDisruptionBudgets."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        return plan_down(KIND, tenant, found, _desired(tenant, view), view, owned=_owned)


def _desired(tenant: Object, view: View) -> Object | Wait | tuple[Refusal, ...]:
    desired = start(KIND, tenant, view)
    if not isinstance(desired, dict):
        return desired
    spec = desired.setdefault("spec", {})
    if isinstance(spec.get("selector"), dict):
        spec["selector"] = translate_selector(spec["selector"], view)
    if not isinstance(spec.get("minAvailable"), int):
        status = upward.status_of(tenant)
        observed, healthy = status.get("observedGeneration"), status.get("desiredHealthy")
        if observed != metadata(tenant).get("generation") or not isinstance(healthy, int):
            return Wait(WAITS_FOR_STATUS, "the tenant's disruption controller has not observed it yet")
        spec.pop("maxUnavailable", None)
        spec["minAvailable"] = healthy
    return desired


def _owned(value: Object) -> Object:
    return {"spec": value.get("spec") or {}}


SYNC: KindSync = PodDisruptionBudgetSync()
