# SPDX-License-Identifier: Apache-2.0
"""The end of a tenant: `life.deletion` decides the order, here are its facts and steps.

The phase comes first: vc-syncer and vn-agents serve the phases Running and Updating alone, so that nothing is
made anew meanwhile.
"""

from collections.abc import Mapping

from tenancy import keys
from tenancy import names as tenancy_names
from tenant_operator.core import availability, databases
from tenant_operator.core.conditions import ConditionType, fails, timestamp
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, TenantPlan
from tenant_operator.core.probes import NamespacesProbe
from tenant_operator.core.steps import Apply, EndPods, PatchCluster, Remove
from tenant_operator.life import deletion as rules
from tenant_operator.life.deletion import FINALIZER, DeletionFacts, OwnedObject
from tenant_operator.model import names
from tenant_operator.model.objects import Object, Ref

TERMINATING = "Terminating"
_AWAITED_S = 1.0
_LISTED_S = 30.0
# After the time that the API server has given a pod to end: its kubelet has not ended it, or is away.
_LATE_S = 60.0


def deletion(observed: Observed) -> TenantPlan:
    """The next steps towards the end of a VirtualCluster that is being deleted."""
    cluster = observed.virtual_cluster
    if FINALIZER not in cluster.metadata.finalizers or isinstance(cluster.key, tenancy_names.Refused):
        return TenantPlan()
    builder = PlanBuilder()
    probe = NamespacesProbe(cluster.key, cluster.metadata.uid)
    namespaces = observed.probes.get(probe.name)
    if cluster.status.phase != TERMINATING:
        builder.look_again(_AWAITED_S)
        message = "waiting for vc-syncer and vn-agents to detach"
    elif namespaces is None or (not namespaces.is_ok and not namespaces.facts):
        _list(builder, observed, probe)
        detail = "" if namespaces is None else f": {namespaces.detail}"
        message = f"waiting for the list of its super namespaces{detail}"
    else:
        _list(builder, observed, probe)
        facts = _facts(observed, namespaces.facts, cluster.key)
        step = rules.next_step(facts, observed.now_s)
        kept = _keep_claims(observed, cluster.key) if cluster.spec.volumes == "Retain" else []
        builder.steps += [each for each in kept if each is not None]
        builder.steps += [
            Remove(ref, uid) for ref, uid in step.removed if not kept or ref.kind != "StatefulSet"
        ]
        if step.is_forced and observed.live("Namespace", "", cluster.key) is not None:
            builder.steps.append(EndPods(cluster.key, timestamp(observed.now_s - _LATE_S)))
        if facts.database is not None and step.drops_database:
            # Last: what follows a step that fails is not taken.
            builder.steps.append(databases.drop_step(observed, cluster.key, facts.database))
        if step.is_retained and not _is_retained(observed, cluster.key):
            # Before the VirtualCluster is gone: vc-syncer collects a root namespace without one.
            builder.steps.append(Apply(_retained(observed, cluster.key)))
        elif step.removes_finalizer:
            builder.steps.append(_without_finalizer(observed))
        message = step.message
    return TenantPlan(
        steps=tuple(builder.steps),
        probes=tuple(builder.probes),
        findings=(fails(ConditionType.READY, TERMINATING, message),),
        waits_for=message,
        check_again_s=builder.check_again_s,
        phase=TERMINATING,
        key=cluster.key,
    )


def _list(builder: PlanBuilder, observed: Observed, probe: NamespacesProbe) -> None:
    """All namespaces of the super cluster are read: ever more rarely while nothing changes."""
    due_in_s = availability.due_in_s(observed, probe.name, _LISTED_S, _AWAITED_S, _LISTED_S)
    if due_in_s == 0.0:
        builder.probes.append(probe)
    builder.look_again(due_in_s or _LISTED_S)


def _facts(observed: Observed, namespaces: Mapping[str, str], key: str) -> DeletionFacts:
    return DeletionFacts(
        observed.virtual_cluster,
        {ref: OwnedObject(live.metadata.uid, live.is_ending) for ref, live in observed.objects.items()},
        {name: OwnedObject(uid, not uid) for name, uid in namespaces.items()},
        databases.to_drop(observed, key),
    )


def _keep_claims(observed: Observed, key: str) -> list[Apply | None]:
    """What must happen before the store's StatefulSet may go without its claims: empty if nothing must.

    Its controller made it the owner of its claims while they were to go with it, and takes that back once the
    StatefulSet says so. Until then the garbage collector would take the claims.
    """
    live = observed.live("StatefulSet", key, names.ETCD)
    if live is None:
        return []
    value = live.value
    policy = {**value["spec"].get("persistentVolumeClaimRetentionPolicy", {}), "whenDeleted": "Retain"}
    if value["spec"].get("persistentVolumeClaimRetentionPolicy") != policy:
        meta = {"name": names.ETCD, "namespace": key, "labels": live.metadata.labels}
        spec = value["spec"] | {"persistentVolumeClaimRetentionPolicy": policy}
        return [Apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec})]
    claims = [each for ref, each in observed.objects.items() if ref.kind == "PersistentVolumeClaim"]
    owners = [owner for each in claims for owner in each.value["metadata"].get("ownerReferences") or []]
    return [None] if any(owner.get("uid") == live.metadata.uid for owner in owners) else []


def _is_retained(observed: Observed, key: str) -> bool:
    live = observed.live("Namespace", "", key)
    return live is None or live.metadata.annotations.get(keys.RETAINED) == "true"


def _retained(observed: Observed, key: str) -> Object:
    """The root namespace as it is: an apply without its other fields would take them away."""
    meta = observed.objects[Ref("Namespace", "", key)].metadata
    annotations = meta.annotations | {keys.RETAINED: "true"}
    metadata = {"name": key, "labels": meta.labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _without_finalizer(observed: Observed) -> PatchCluster:
    meta = observed.virtual_cluster.metadata
    left = [each for each in meta.finalizers if each != FINALIZER]
    return PatchCluster({"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}})
