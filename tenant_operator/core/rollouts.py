# SPDX-License-Identifier: Apache-2.0
"""How many tenants get other pods at a time. Pure.

A new operator, an edited ClusterVersion or another authority of nodes changes the pods of all tenants. Each
takes a place before it does, and gives it back once it is Ready again: a change that is bad for all ends with
the first ones. The place is an annotation on the root namespace, so that a restart of the operator forgets
none.

What takes no place: pods that are made, woken or deleted, and those of a control plane that has not served
for a minute. It may be the change that mends it. A shorter time says nothing: where nodes have too much to
do, pods of all tenants are late now and then.

A tenant can keep its own control plane from getting Ready. After ten minutes its place is free for another
one. The annotation stays until it is Ready: until then only its workload with those pods may get others.
"""

from collections.abc import Sequence

from tenancy import keys
from tenant_operator.core.conditions import ConditionType, Finding, fails, timestamp
from tenant_operator.core.live import contains
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.probes import NODES_PODS
from tenant_operator.core.steps import Apply
from tenant_operator.core.workloads import Readiness, readiness_of, workloads
from tenant_operator.life.requests import time_of
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object, Ref, ref_of
from tenant_operator.provisioners.native.network import root_namespace

# Who waits is planned again when a place is free. This is for a lost event alone.
_HELD_S = 300.0
REPAIR_S = 60.0
# As long as a Deployment has by default to make progress.
LONGEST_S = 600.0
# Nodes are asked whether they serve the tenant still: an answer of before does not count.
_ASKED_S = 10.0


def since(observed: Observed, key: str) -> str:
    """When the tenant took its place; empty if it has none.

    A place of the future, which a clock that was ahead has left, is one of now: it is written so.
    """
    live = observed.live("Namespace", "", key)
    taken_at = "" if live is None else live.metadata.annotations.get(keys.ROLLING_SINCE, "")
    return timestamp(observed.now_s) if _begun(taken_at) > observed.now_s else taken_at


def is_late(observed: Observed, key: str) -> bool:
    """Whether it got its pods so long ago that its place is free again."""
    taken_at = since(observed, key)
    return bool(taken_at) and observed.now_s - _begun(taken_at) >= LONGEST_S


class Rollout:
    """What one plan does to workloads that run."""

    def __init__(
        self, builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, settings: Settings
    ) -> None:
        self._builder = builder
        self._observed = observed
        self._control_plane = control_plane
        self._settings = settings
        self._is_late = is_late(observed, control_plane.key)
        self._is_marked = bool(since(observed, control_plane.key)) and not self._is_late
        self.changed = ""
        """The workload whose pods this plan replaces; empty if it replaces none."""

    def may_apply(self, manifest: Object) -> bool:
        """Whether the object may be applied now. The place is taken before, where one is needed."""
        # A rotation concerns this tenant alone, whose people may ask for one: it takes nothing from others.
        if self._builder.rotations or not _is_rolling_out(self._observed, manifest):
            return True
        name = manifest["metadata"]["name"]
        is_settled = readiness_of(name, self._observed.objects.get(ref_of(manifest))).is_settled
        if self._is_late and not is_settled:
            # Those with which it does not get Ready: others may mend it.
            return self._change(name)
        if not self._observed.may_roll:
            self._builder.held = self._builder.held or _held(name, self._settings.max_rolling)
            self._builder.look_again(_HELD_S if is_settled else REPAIR_S)
            return False
        if not self._is_marked:
            self._is_marked = self._builder.takes_place = True
            self._is_late = False
            marked = root_namespace(self._control_plane, timestamp(self._observed.now_s))
            self._builder.steps.append(Apply(marked))
        return self._change(name)

    def _change(self, name: str) -> bool:
        self.changed = self.changed or name
        self._builder.is_rolling = True
        return True


def _is_rolling_out(observed: Observed, manifest: Object) -> bool:
    """Whether a workload would get pods of another template, of a tenant that is served."""
    ref = ref_of(manifest)
    live = observed.objects.get(ref)
    if live is None or ref.kind not in ("Deployment", "StatefulSet"):
        return False
    if not readiness_of(ref.name, live).desired or _is_away(observed):
        return False
    return not contains(live.value["spec"].get("template"), manifest["spec"]["template"])


def _is_away(observed: Observed) -> bool:
    """Whether the control plane has never served, or not for a while."""
    status = observed.virtual_cluster.status
    for each in status.conditions:
        if each.type == ConditionType.CONTROL_PLANE_AVAILABLE and each.status != "True":
            return observed.now_s - (time_of(each.last_transition_time) or 0.0) >= REPAIR_S
    return not status.cluster_version


def _held(name: str, most: int) -> Finding:
    message = (
        f"{name} is to get other pods, and waits for a place: {most} tenants get other pods at a time, "
        f"each until it is Ready again, for {LONGEST_S / 60:.0f} minutes at most. vc-operator's status page "
        "names those; maxRolling in its configuration is the number"
    )
    return fails(ConditionType.UP_TO_DATE, "RolloutWaits", message)


def give_back(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    parts: Sequence[Readiness],
    ready: Finding,
    *,
    is_running: bool,
) -> None:
    """End the place, if all pods are the new ones and the tenant is as well as it was before, or if a person
    has to act before anything else is done."""
    taken_at = since(observed, control_plane.key)
    if not taken_at or builder.is_rolling:
        return
    is_well = ready.is_true and _is_asked(observed, control_plane)
    is_settled = all(each.is_settled for each in parts)
    is_over = is_settled and (not is_running or is_well or _was_not_ready(observed, taken_at))
    # Pods of a sleeping tenant serve no request, also those on a node that is away.
    if control_plane.is_asleep or builder.blocked is not None or is_over:
        builder.steps.append(Apply(root_namespace(control_plane)))
    elif is_late(observed, control_plane.key):
        builder.late = _late(parts, ready)
    else:
        # Others wait for it, and no event comes then.
        builder.look_again(max(_begun(taken_at) + LONGEST_S - observed.now_s, 1.0))


def _late(parts: Sequence[Readiness], ready: Finding) -> Finding:
    behind = next((each.sentence for each in parts if not each.is_settled), ready.message)
    message = (
        f"its pods were replaced, and it has not become Ready within {LONGEST_S / 60:.0f} minutes: {behind}. "
        "Other tenants are changed meanwhile; mend it, undo the change, or put it to sleep: kubectl vc sleep"
    )
    return fails(ConditionType.UP_TO_DATE, "RolloutLate", message)


def replaced_pods(observed: Observed, control_plane: ControlPlane) -> str:
    """Identifies the pods that it has a place for, once all are of their present templates and ready; empty
    before, and without a place."""
    taken_at = since(observed, control_plane.key)
    parts = workloads(observed, control_plane)
    if not taken_at or not all(each.is_settled for each in parts):
        return ""
    found = [observed.objects.get(_ref(control_plane.key, each.name)) for each in parts]
    made = [str(each.value["metadata"].get("generation", 0)) for each in found if each is not None]
    return f"{taken_at}/{'/'.join(made)}"


def asked_after_s(observed: Observed, control_plane: ControlPlane, otherwise_s: float) -> float:
    """How old the answer of nodes may get."""
    if not since(observed, control_plane.key):
        return otherwise_s
    is_awaited = replaced_pods(observed, control_plane) and not _is_asked(observed, control_plane)
    return 0.0 if is_awaited else _ASKED_S


def _is_asked(observed: Observed, control_plane: ControlPlane) -> bool:
    """Whether nodes answered after the last pod was replaced: what they answered before is about others."""
    asked = observed.probes.get("nodes")
    pods = replaced_pods(observed, control_plane)
    return asked is not None and asked.facts.get(NODES_PODS, "") == pods != ""


def _ref(key: str, name: str) -> Ref:
    return Ref("StatefulSet" if name == names.ETCD else "Deployment", key, name)


def _begun(taken_at: str) -> float:
    return time_of(taken_at) or 0.0


def _was_not_ready(observed: Observed, taken_at: str) -> bool:
    """Whether something else keeps the tenant from being Ready: it was not before."""
    for each in observed.virtual_cluster.status.conditions:
        if each.type == ConditionType.READY and each.status != "True":
            return (time_of(each.last_transition_time) or 0.0) < _begun(taken_at)
    return False
