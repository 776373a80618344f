# SPDX-License-Identifier: Apache-2.0
"""What the conditions of a tenant say, from its workloads, certificates and probes."""

from collections.abc import Sequence

from daemonkit.backoff import backoff_s
from tenant_operator.core.conditions import ConditionStatus, ConditionType, Finding, fails, holds, unknown
from tenant_operator.core.observed import Observed, ProbeResult
from tenant_operator.core.workloads import Readiness
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.virtual_cluster import Condition

# A part that starts is asked so often without a longer wait: a person waits for it.
FIRST_TRIES = 8
LONGEST_RETRY_S = 300.0

NOT_ASKED = "NotAsked"

# Reasons of vc-syncer's conditions by which a tenant is not synced.
_SYNCER_PROBLEMS = frozenset(
    {
        "NotReachable",
        "CredentialsUnusable",
        "ClusterKeyRefused",
        "ClusterKeyTaken",
        "OutOfMemory",
        "KeysOverlap",
    }
)


def control_plane_available(
    control_plane: ControlPlane, workloads: Sequence[Readiness], waits_for: str, *, was_available: bool
) -> Finding:
    """From the workloads' statuses: a readiness probe that fails shows there within seconds.

    `waits_for`: the object without which the next step cannot be taken. Before there is a workload, that is
    why it is not available. What `was_available` stays so while a change of it is not observed yet; what was
    not, such as a tenant that is woken, has no status to go by until then.
    """
    type_ = ConditionType.CONTROL_PLANE_AVAILABLE
    away = [
        each
        for each in workloads
        if not (each.is_available if control_plane.is_asleep else each.is_serving)
        or not (was_available or each.is_observed)
    ]
    if not away:
        return _serving(control_plane, workloads)
    first = away[0]
    if not first.desired and waits_for:
        return fails(type_, "Waiting", waits_for)
    if first.has_no_pod and not first.problem:
        # A StatefulSet's status does not have why its pods are refused.
        kind = "statefulset" if first.name == names.ETCD else "deployment"
        where = f"namespace {control_plane.key} has no pod of it"
        look = f"kubectl -n {control_plane.key} describe {kind} {first.name}"
        return fails(type_, "WorkloadNotReady", f"{first.sentence}; {where}: {look}")
    remedy = "change that" if first.problem else "look at its pods"
    shared = "" if control_plane.has_own_store else control_plane.release.datastore.secret_name
    store = f", and whether the datastore of Secret {shared} answers" if shared else ""
    where = f"in namespace {control_plane.key}{store}"
    return fails(type_, "WorkloadNotReady", f"{first.sentence}; {remedy} {where}")


def _serving(control_plane: ControlPlane, workloads: Sequence[Readiness]) -> Finding:
    """It serves. With a member of its store missing it does until it loses the next one."""
    type_ = ConditionType.CONTROL_PLANE_AVAILABLE
    missing = [each for each in workloads if each.ready < each.desired]
    if not missing:
        return holds(type_, "WorkloadsReady", "the API server, the controller manager and the store serve")
    message = f"{missing[0].sentence}, and serves; look at its pods in namespace {control_plane.key}"
    return holds(type_, "ReplicasMissing", message)


def syncer_attached(conditions: Sequence[Condition], probe: ProbeResult | None) -> Finding:
    """Whether vc-syncer serves the tenant: what it says itself, and the namespace that it makes first."""
    type_ = ConditionType.SYNCER_ATTACHED
    for each in conditions:
        if not each.type and each.status == "True" and each.reason in _SYNCER_PROBLEMS:
            return fails(type_, each.reason, each.message)
    if probe is None:
        return unknown(type_, NOT_ASKED, "the control plane does not serve yet")
    if probe.is_ok:
        return holds(type_, "NamespacesSynced")
    return fails(type_, "NotSynced", f"{probe.detail}; see whether vc-syncer runs: vcnode tenants")


def nodes_serving(probe: ProbeResult | None) -> Finding:
    """Whether nodes answer the tenant's API server."""
    type_ = ConditionType.NODES_SERVING
    if probe is None:
        return unknown(type_, NOT_ASKED, "the control plane does not serve yet")
    if probe.is_ok:
        return holds(type_, "NodesAnswer", probe.detail)
    return fails(type_, "NodesRefuse", f"{probe.detail}; see whether vn-agent runs there: vcnode status")


def until_asked(finding: Finding, conditions: Sequence[Condition]) -> Finding:
    """What was reported stays until it is asked again: a restart of the operator takes readiness from
    no tenant."""
    before = next((each for each in conditions if each.type == finding.type), None)
    if finding.reason != NOT_ASKED or before is None or before.status not in tuple(ConditionStatus):
        return finding
    return Finding(finding.type, ConditionStatus(before.status), before.reason, before.message)


def ready(findings: Sequence[Finding]) -> Finding:
    """Ready if no other condition stands against it; else what the first of them says."""
    against = (
        ConditionType.CONTROL_PLANE_AVAILABLE,
        ConditionType.CERTIFICATES_VALID,
        ConditionType.SYNCER_ATTACHED,
        ConditionType.NODES_SERVING,
    )
    for each in findings:
        if each.type in against and each.status is not ConditionStatus.TRUE:
            return Finding(ConditionType.READY, ConditionStatus.FALSE, each.reason, each.message)
    return holds(ConditionType.READY, "TenantReady", "kubectl works: kubectl vc kubeconfig")


def is_due(observed: Observed, name: str, age_s: float, retry_s: float) -> bool:
    """Whether a probe is to be asked now."""
    return due_in_s(observed, name, age_s, retry_s) == 0.0


def due_in_s(
    observed: Observed, name: str, age_s: float, retry_s: float, longest_s: float = LONGEST_RETRY_S
) -> float:
    """When a probe is to be asked again: `age_s` after it was ok; otherwise after `retry_s`, and later each
    time once it was not ok for long."""
    found = observed.probes.get(name)
    if found is None:
        return 0.0
    late = max(found.failures - FIRST_TRIES, 0) + 1
    wait_s = age_s if found.is_ok else backoff_s(late, first_s=retry_s, longest_s=longest_s)
    elapsed_s = observed.now_s - found.at
    # An answer from a time that is still to come: the clock went back.
    return wait_s - elapsed_s if 0 <= elapsed_s < wait_s else 0.0
