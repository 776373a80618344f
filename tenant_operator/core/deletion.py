# SPDX-License-Identifier: Apache-2.0
"""The end of a tenant, in order: its pods, its control plane with all keys, what is elsewhere, the finalizer.

The phase comes first: vc-syncer and vn-agents serve the phases Running and Updating alone, so that nothing is
made anew meanwhile. What was never made is not waited for. What is in the way of one part does not keep
another: only the finalizer waits for all, and the condition names the first object that is left.
"""

from tenancy import names as tenancy_names
from tenant_operator.core.conditions import ConditionType, fails
from tenant_operator.core.native import FINALIZER
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, TenantPlan
from tenant_operator.core.probes import NamespacesProbe
from tenant_operator.core.steps import PatchCluster, Remove
from tenant_operator.model import names
from tenant_operator.model.objects import Ref

TERMINATING = "Terminating"
_AWAITED_S = 1.0
# Of a volume that is kept: it holds what these encrypt.
_KEPT_WITH_VOLUMES = (("PersistentVolumeClaim", ""), ("Secret", names.ENCRYPTION_CONFIG))


def deletion(observed: Observed) -> TenantPlan:
    """The next steps towards the end of a VirtualCluster that is being deleted."""
    meta = observed.virtual_cluster.metadata
    key = observed.virtual_cluster.key
    if FINALIZER not in meta.finalizers or isinstance(key, tenancy_names.Refused):
        return TenantPlan()
    builder = PlanBuilder()
    if observed.virtual_cluster.status.phase == TERMINATING:
        _remove_namespaces(builder, observed, key)
        _remove_objects(builder, observed, key)
        if not builder.waits_for:
            builder.steps.append(_without_finalizer(observed))
    else:
        builder.wait("vc-syncer to detach")
    builder.look_again(_AWAITED_S)
    message = f"the deletion waits for {builder.waits_for}" if builder.waits_for else "the last step is due"
    return TenantPlan(
        steps=tuple(builder.steps),
        probes=tuple(builder.probes),
        findings=(fails(ConditionType.READY, TERMINATING, message),),
        waits_for=builder.waits_for,
        check_again_s=builder.check_again_s,
        phase=TERMINATING,
        key=key,
    )


def _remove_namespaces(builder: PlanBuilder, observed: Observed, key: str) -> None:
    """The super namespaces with the tenant's pods, which vc-syncer made."""
    probe = NamespacesProbe(key, observed.virtual_cluster.metadata.uid)
    builder.probes.append(probe)
    found = observed.probes.get(probe.name)
    if found is None:
        builder.wait("the list of its super namespaces")
        return
    if not found.is_ok and not found.facts:
        builder.wait(f"the list of its super namespaces: {found.detail}")
        return
    for name, uid in sorted(found.facts.items()):
        ref = Ref("Namespace", "", name)
        builder.wait(f"{ref}; kubectl describe namespace {name} shows what is left in it")
        if uid:
            builder.steps.append(Remove(ref, uid))


def _remove_objects(builder: PlanBuilder, observed: Observed, key: str) -> None:
    """What was made for it. Its root namespace takes all with it that is in there."""
    keeps_volumes = observed.virtual_cluster.spec.volumes == "Retain"
    root = Ref("Namespace", "", key)
    for ref, live in sorted(observed.objects.items()):
        if keeps_volumes and (ref == root or _is_kept(ref)):
            continue
        if ref.namespace == key and root in observed.objects and not keeps_volumes:
            continue
        builder.wait(str(ref))
        if not live.is_ending:
            builder.steps.append(Remove(ref, live.metadata.uid))


def _is_kept(ref: Ref) -> bool:
    return any(ref.kind == kind and name in ("", ref.name) for kind, name in _KEPT_WITH_VOLUMES)


def _without_finalizer(observed: Observed) -> PatchCluster:
    meta = observed.virtual_cluster.metadata
    left = [each for each in meta.finalizers if each != FINALIZER]
    return PatchCluster({"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}})
