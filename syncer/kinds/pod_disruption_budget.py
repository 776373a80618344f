# SPDX-License-Identifier: Apache-2.0
"""PodDisruptionBudgets go down as a number of pods that must stay. Pure.

Super pods have no controllers, so the super cluster cannot tell how many pods `maxUnavailable` or a share
leaves: it would allow no disruption at all. The tenant's disruption controller knows: its `desiredHealthy`
goes down as `minAvailable`. The status is that controller's own: nothing comes up, or both would write it.

A budget may say that no pod is to be disrupted, and an eviction of a pod with two fails. So they leave the
super cluster where they have held up the drain of a node for longer than the SyncPolicy lets them.
"""

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind, metadata
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Change, Delete, Plan, Refusal, Wait
from syncer.core.view import View
from syncer.kinds import upward
from syncer.kinds.downward import plan_down, plan_removal, plan_stay, refused_deletions, start
from syncer.kinds.metadata import translate_selector
from syncer.kinds.port import KindSync, SameName, Scope
from syncer.policy.sync_policy import SyncPolicy

KIND = SyncedKind(Resource("policy", "v1", "poddisruptionbudgets"), "PodDisruptionBudget")
WAITS_FOR_STATUS = "BudgetNotObserved"


class PodDisruptionBudgetSync(SameName):
    """PodDisruptionBudgets."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if changes := _stays(key[0], view):
            # Also where the tenant's is gone: that deletion may be held, and the drain with it.
            return plan_stay(KIND, found, key[0], view, () if tenant is None else changes)
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        return plan_down(KIND, tenant, found, _desired(tenant, view), view, owned=_owned)

    def plan_unreadable(self, key: Key, found: Object, view: View) -> tuple[Delete, ...]:
        return refused_deletions(KIND, found, key[0], view) if _stays(key[0], view) else ()


def may_stay(policy: SyncPolicy, drain_s: float) -> bool:
    """Whether budgets may be in the super cluster while the drain of a node lasts for so long."""
    most_s = policy.pod_disruption_budgets.max_drain_seconds
    return most_s > 0 and drain_s <= most_s


def _stays(namespace: str, view: View) -> tuple[Change, ...]:
    most_s = view.policy.pod_disruption_budgets.max_drain_seconds
    field = "SyncPolicy field spec.podDisruptionBudgets.maxDrainSeconds"
    if most_s == 0:
        return (Change("spec", f"stays in this cluster: {field} is 0"),)
    if may_stay(view.policy, view.drain_seconds(namespace)):
        return ()
    why = (
        f"a node that runs pods of namespace {namespace} has been cordoned for more than {most_s} s ({field})"
    )
    return (Change("spec", f"stays in this cluster for now: {why}"),)


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
