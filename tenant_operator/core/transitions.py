# SPDX-License-Identifier: Apache-2.0
"""What happened to a VirtualCluster by a change of its status: what people want to find in a log.

The status is the memory: a transition is between what was written before and what is written now, so that a
restart repeats none.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tenant_operator.core.conditions import ConditionStatus, ConditionType
from tenant_operator.core.deletion import TERMINATING
from tenant_operator.core.plan import TenantPlan
from tenant_operator.core.steps import PatchCluster
from tenant_operator.core.tenant import RUNNING, UPDATING
from tenant_operator.life.deletion import FINALIZER
from tenant_operator.model.virtual_cluster import Condition, VirtualCluster, VirtualClusterStatus

READY = "VirtualCluster became ready"
NOT_READY = "VirtualCluster is not ready any more"
UPGRADED = "VirtualCluster was upgraded"
ASLEEP = "VirtualCluster was put to sleep"
AWAKE = "VirtualCluster was woken"
TERMINATES = "VirtualCluster is being deleted"
PUT_BACK = "the finalizer of a VirtualCluster was removed and is put back"
DELETED = "VirtualCluster was deleted"


class Transition(msgspec.Struct, frozen=True):
    """`facts` are the fields of a log line. `is_first`: it was never ready before."""

    message: str
    facts: dict[str, str] = {}
    is_first: bool = False


def transitions(before: VirtualClusterStatus, after: VirtualClusterStatus) -> Iterator[Transition]:
    """Each, in the order in which people think of them."""
    if after.phase == TERMINATING:
        if before.phase != TERMINATING:
            yield Transition(TERMINATES)
        return
    if before.cluster_version and after.cluster_version != before.cluster_version:
        facts = {"from": before.cluster_version, "to": after.cluster_version}
        yield Transition(UPGRADED, facts | {"kubernetes_version": after.kubernetes_version})
    was, now = (_found(each, ConditionType.SLEEPING) for each in (before, after))
    is_asleep = now.status == ConditionStatus.TRUE
    if is_asleep and was.status != ConditionStatus.TRUE:
        yield Transition(ASLEEP, {"by": after.sleep.why if after.sleep is not None else ""})
    elif was.status == ConditionStatus.TRUE and now.status == ConditionStatus.FALSE:
        yield Transition(AWAKE, {"detail": now.message})
    was, now = (_found(each, ConditionType.READY) for each in (before, after))
    is_ready, was_ready = (each.status == ConditionStatus.TRUE for each in (now, was))
    if is_ready and not was_ready:
        yield Transition(READY, {"reason": now.reason}, is_first=_is_first(was, before.conditions))
    elif was_ready and not (is_ready or after.sleep is not None):
        yield Transition(NOT_READY, {"reason": now.reason, "detail": now.message})


def put_back(before: VirtualCluster, made: TenantPlan) -> Iterator[Transition]:
    """After the steps of a plan: a finalizer that a client has removed is there again."""
    is_removed = before.status.phase in (RUNNING, UPDATING) and FINALIZER not in before.metadata.finalizers
    if is_removed and any(isinstance(each, PatchCluster) for each in made.steps):
        yield Transition(PUT_BACK, {"finalizer": FINALIZER})


def deleted(made: TenantPlan) -> Iterator[Transition]:
    """After the steps of a plan: the last one of a deletion takes the finalizer away."""
    if made.phase == TERMINATING and any(isinstance(each, PatchCluster) for each in made.steps):
        yield Transition(DELETED, {"detail": made.waits_for})


def _is_first(ready: Condition, conditions: Sequence[Condition]) -> bool:
    """Whether it has not been ready since its first status: then no other condition is older."""
    since = ready.last_transition_time
    return all(each.last_transition_time >= since for each in conditions if each.type)


def _found(status: VirtualClusterStatus, type_: ConditionType) -> Condition:
    return next((each for each in status.conditions if each.type == type_), Condition(type_))
