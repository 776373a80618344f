# SPDX-License-Identifier: Apache-2.0
"""The plan for one VirtualCluster."""

import hashlib
from collections.abc import Sequence

import msgspec

from tenancy import keys
from tenancy import names as tenancy_names
from tenant_operator.core import (
    availability,
    backups,
    credentials,
    defaults,
    kept_versions,
    known_keys,
    lost_namespace,
    native,
    restores,
    rollouts,
    served,
    store_space,
    versions,
)
from tenant_operator.core.conditions import ConditionStatus, ConditionType, Finding, fails, unknown
from tenant_operator.core.deletion import deletion
from tenant_operator.core.imported import plan_imported
from tenant_operator.core.kept_versions import Resolved, resolve
from tenant_operator.core.observed import Observed, ProbeResult
from tenant_operator.core.plan import PlanBuilder, Settings, TenantPlan
from tenant_operator.core.probes import NodesProbe, ReadyzProbe, ServedProbe, SyncerProbe
from tenant_operator.core.steps import PatchCluster
from tenant_operator.core.versions import VersionPlan
from tenant_operator.core.workloads import pods_of, workloads
from tenant_operator.life import requests, sleep
from tenant_operator.life.deletion import FINALIZER
from tenant_operator.life.requests import Requests
from tenant_operator.life.restore import RestoreDecision
from tenant_operator.life.sleep import SleepDecision
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import SleepStatus, VirtualCluster
from tenant_operator.pki.catalog import server_url

# Of a tenant that is well, what no watch shows is asked so often. vc-syncer's namespace stays, and what goes
# wrong after it vc-syncer reports itself. The super cluster has less than two requests an hour for a tenant.
_NODES_S, _SYNCER_S = 5400.0, 6 * 3600.0
# What is refused because of another VirtualCluster is seen again when that has ended. It costs no request.
_REFUSED_S = 30.0
# What makes a tenant Ready, of all that is asked.
_FIRST = frozenset({"syncer", "nodes"})
# While something is awaited.
_AWAITED_S = 1.0
RUNNING, UPDATING, PENDING = "Running", "Updating", "Pending"


def plan(observed: Observed, settings: Settings) -> TenantPlan:
    """The next steps, with the status that goes with them."""
    if observed.virtual_cluster.metadata.deletion_timestamp:
        return deletion(observed)
    if _is_foreign(observed):
        return TenantPlan()
    kept = kept_versions.read(observed)
    observed = msgspec.structs.replace(observed, cluster_versions=kept.versions)
    resolved = resolve(observed, settings, kept)
    if isinstance(resolved, SpecProblem):
        finding = fails(ConditionType.READY, resolved.reason, resolved.text)
        return TenantPlan(findings=(finding,), waits_for=resolved.text, check_again_s=_REFUSED_S)
    cluster = observed.virtual_cluster
    if cluster.spec.import_ is not None:
        made = plan_imported(observed, resolved.control_plane, cluster.spec.import_, settings)
        return _with_refused(made, _asked(observed), None)
    asked = _asked(observed)
    rest = sleep.decide(cluster, asked, observed.now_s, _volumes(observed))
    made_as = native.as_made(observed, resolved.control_plane)
    resolved = kept_versions.with_members(resolved, made_as)
    inputs = native.manifest_inputs(observed, made_as, settings)
    # It is Running before all of it runs, and a new tenant may begin with a backup.
    has_run = cluster.status.cluster_version != ""
    restoring = restores.decide(observed, made_as, inputs, asked.restore, has_run=has_run)
    # A restore that is under way wakes the tenant for its end.
    if restoring.is_active:
        rest = SleepDecision(is_asleep=False, reason=restoring.reason, message=restoring.message)
    is_asleep = rest.is_asleep or restoring.is_stopped
    control_plane = msgspec.structs.replace(made_as, is_asleep=is_asleep)
    found = versions.versions_of(
        observed, control_plane.key, control_plane.release, asked, is_asleep=is_asleep
    )
    if found.versions is None:
        control_plane, is_known = versions.as_running(observed, control_plane)
    else:
        control_plane, is_known = versions.with_versions(control_plane, found.versions), True
    builder = PlanBuilder()
    if keys.CONFIRM_UPGRADE in cluster.metadata.annotations and _is_new_upgrade(found, cluster):
        # Left of another upgrade to this name: a person confirms what there is to see.
        builder.steps.append(PatchCluster({"metadata": {"annotations": {keys.CONFIRM_UPGRADE: None}}}))
    if native.claim(builder, observed, control_plane, is_restoring=restoring.is_active):
        kept_versions.keep(builder, observed, resolved, kept, found.upgrade)
        certificates = native.stages(builder, observed, control_plane, settings, asked, is_known=is_known)
    else:
        certificates = None
    if rest.next_change_at_s is not None:
        builder.look_again(max(rest.next_change_at_s - observed.now_s, 1.0))
    if observed.live("Namespace", "", control_plane.key) is not None:
        restores.settle(builder, observed, control_plane, inputs, restoring)
    saved = backups.settle(
        builder, observed, control_plane, inputs, asked.backup, is_frozen=restoring.needs_snapshot
    )
    backups.forget_credentials(builder, observed, control_plane)
    if not (is_asleep or restoring.is_active):
        store_space.settle(builder, observed, control_plane, inputs)
    made = _with_versions(
        _completed(builder, observed, control_plane, settings, certificates),
        found,
        resolved,
        has_version=cluster.status.cluster_version != "",
    )
    known = known_keys.key_statuses(observed, control_plane, asked.rotations)
    made = restores.with_restore(msgspec.structs.replace(made, backups=saved, keys=known), restoring)
    made = _with_rollout(made, builder)
    left = pods_of(workloads(observed, control_plane))
    made = _with_refused(_with_findings(made, builder.findings), asked, restoring)
    return _with_sleep(made, rest, left)


def _with_findings(made: TenantPlan, others: Sequence[Finding]) -> TenantPlan:
    """What stages have found takes the place of a condition that is True; another one goes first."""
    kept = {each.type: each for each in made.findings}
    for each in others:
        if each.type not in kept or kept[each.type].is_true:
            kept[each.type] = each
    return msgspec.structs.replace(made, findings=tuple(kept.values()))


def _with_rollout(made: TenantPlan, builder: PlanBuilder) -> TenantPlan:
    """A change that waits for other tenants, or has not ended for long, is not up to date, whatever else it
    waits for."""
    made = msgspec.structs.replace(
        made, takes_place=builder.takes_place, waits_for_place=builder.held is not None
    )
    finding = builder.held or builder.late
    if finding is None:
        return made
    return msgspec.structs.replace(
        made, findings=(*(each for each in made.findings if each.type != finding.type), finding)
    )


def _with_versions(
    made: TenantPlan, found: VersionPlan, resolved: Resolved, *, has_version: bool
) -> TenantPlan:
    """The plan with condition UpToDate, and the ClusterVersion of the status once all run it.

    `has_version`: all ran one before. Without it the first one is installed, which is no update.
    """
    is_running = made.phase == RUNNING
    target, problem = resolved.control_plane.release, resolved.problem
    finding = found.finding
    if problem is not None:
        finding = fails(ConditionType.UP_TO_DATE, problem.reason, problem.text)
    return msgspec.structs.replace(
        made,
        findings=(*made.findings, finding),
        phase=UPDATING if is_running and has_version and found.waits_for else made.phase,
        cluster_version=target.name if found.is_complete and is_running else None,
        kubernetes_version=target.kubernetes_version if found.is_complete and is_running else None,
        upgrade=found.upgrade,
    )


def _is_new_upgrade(found: VersionPlan, cluster: VirtualCluster) -> bool:
    """Whether this plan begins an upgrade, or has the one that is not confirmed lead elsewhere."""
    before = cluster.status.upgrade
    if found.upgrade is None or before is None:
        return found.upgrade is not None
    return (found.upgrade.started_at, found.upgrade.to) != (before.started_at, before.to)


def _volumes(observed: Observed) -> list[Ref]:
    """The claims that it keeps while it sleeps."""
    return sorted(ref for ref in observed.objects if ref.kind == "PersistentVolumeClaim")


def _asked(observed: Observed) -> Requests:
    cluster = observed.virtual_cluster
    is_imported = cluster.spec.import_ is not None
    return requests.read(
        cluster.metadata.annotations, observed.now_s, cluster.status, is_imported=is_imported
    )


def _with_refused(made: TenantPlan, asked: Requests, restoring: RestoreDecision | None) -> TenantPlan:
    """The plan with all requests that are refused in condition UpToDate, before what that has else."""
    texts = [each.message for each in asked.refused]
    reason = "RequestInvalid"
    if restoring is not None and restoring.reason == "RestoreRefused" and not restoring.is_stopped:
        reason = "RequestInvalid" if texts else restoring.reason
        remedy = "remove the annotation, or name another backup"
        texts.append(f"metadata.annotations[{keys.RESTORE_REQUESTED}]: {restoring.message}; {remedy}")
    findings = tuple(
        fails(each.type, reason if each.is_true else each.reason, ". ".join((*texts, each.message)))
        if texts and each.type is ConditionType.UP_TO_DATE
        else each
        for each in made.findings
    )
    return msgspec.structs.replace(made, findings=findings, refused_requests=asked.refused)


def _with_sleep(made: TenantPlan, rest: SleepDecision, pods: int) -> TenantPlan:
    """The plan with condition Sleeping."""
    status = ConditionStatus.TRUE if rest.is_asleep and not pods else ConditionStatus.FALSE
    reason, message = rest.reason, rest.message
    if rest.is_asleep and pods:
        reason, message = "FallingAsleep", f"it waits for the end of {pods} pods of the control plane"
    for problem in rest.problems:
        reason, message = problem.reason, f"{problem.text}. {message}"
    findings = [*made.findings, Finding(ConditionType.SLEEPING, status, reason, message)]
    if rest.is_asleep:
        findings = [
            each if each.reason in lost_namespace.REASONS else _at_rest(each, message) for each in findings
        ]
    kept = SleepStatus(rest.since, rest.why) if rest.is_asleep else None
    return msgspec.structs.replace(made, findings=tuple(findings), sleep=kept)


def _at_rest(finding: Finding, message: str) -> Finding:
    """The condition of a tenant that sleeps. What would be asked of its API server is not known: what an
    operator found before would be lost with its process."""
    if finding.type in (ConditionType.READY, ConditionType.CONTROL_PLANE_AVAILABLE):
        return fails(finding.type, "Asleep", message)
    if finding.type in (ConditionType.SYNCER_ATTACHED, ConditionType.NODES_SERVING):
        return unknown(finding.type, "Asleep", message)
    return finding


def _is_foreign(observed: Observed) -> bool:
    """Whether another provisioner has made its control plane, as upstream's does: it is left as it is.

    With a root namespace of ours it is ours: a client has removed the finalizer, and it is put back.
    """
    cluster = observed.virtual_cluster
    is_served = cluster.status.phase in (RUNNING, UPDATING)
    return is_served and FINALIZER not in cluster.metadata.finalizers and not _is_ours(observed)


def _is_ours(observed: Observed) -> bool:
    """Whether its root namespace has the operator's label, and its UID: only those are observed."""
    key = observed.virtual_cluster.key
    return isinstance(key, str) and observed.live("Namespace", "", key) is not None


def _completed(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    certificates: Finding | None,
) -> TenantPlan:
    """The plan with its conditions, phase and probes."""
    cluster = observed.virtual_cluster
    parts = workloads(observed, control_plane)
    available = availability.control_plane_available(
        control_plane, parts, builder.waits_for, was_available=_was_available(cluster)
    )
    if builder.blocked is not None and (builder.is_lost or not available.is_true):
        available = builder.blocked
    addresses = native.service_addresses(observed, control_plane)
    endpoint = server_url(addresses[0]) if addresses else ""
    is_running = cluster.status.phase in (RUNNING, UPDATING)
    # The tenant is served while its controller manager still starts.
    serves = (
        builder.blocked is None
        and not control_plane.is_asleep
        and all(each.is_serving for each in parts if each.name != names.CONTROLLER_MANAGER)
    )
    asks: Sequence[str] = ()
    if serves:
        asks = _ask(builder, observed, control_plane, settings, endpoint, is_running=is_running)
    readyz = observed.probes.get("readyz")
    if not is_running and readyz is not None and not readyz.is_ok and available.is_true:
        available = unknown(ConditionType.CONTROL_PLANE_AVAILABLE, "NotReachable", readyz.detail)
    is_reached = readyz is not None and readyz.is_ok
    if is_running:
        # A pass takes as long as the tenant's API server likes, and nothing is reported meanwhile: a tenant
        # that starts is reported Ready first.
        is_reached = all(_is_answered(observed.probes.get(name)) for name in _FIRST & set(asks))
    if serves and is_reached:
        builder.findings += defaults.settle(
            builder, observed, control_plane, settings, rights_only=not is_running
        )
    has_rights = defaults.has_rights(observed, control_plane, settings)
    is_served = is_running or (serves and has_rights)
    conditions = cluster.status.conditions
    asked: tuple[Finding, ...] = (
        availability.syncer_attached(conditions, observed.probes.get("syncer")),
        availability.nodes_serving(observed.probes.get("nodes")),
    )
    if is_running and available.is_true and not control_plane.is_asleep:
        asked = tuple(availability.until_asked(each, conditions) for each in asked)
    findings: list[Finding] = [
        available,
        *asked,
        *([] if certificates is None else [certificates]),
    ]
    findings.insert(0, availability.ready(findings))
    rollouts.give_back(builder, observed, control_plane, parts, findings[0], is_running=is_running)
    if not findings[0].is_true:
        builder.wait(findings[0].message)
    is_carried_out = builder.has_applied_all and (
        control_plane.is_asleep or all(each.is_settled for each in parts)
    )
    is_down = not available.is_true and not control_plane.is_asleep
    return TenantPlan(
        steps=tuple(builder.steps),
        probes=tuple(builder.probes),
        findings=tuple(findings),
        waits_for=builder.waits_for,
        check_again_s=builder.check_again_s,
        phase=RUNNING if is_served else PENDING,
        key=control_plane.key,
        endpoint=native.outside(observed, control_plane).url or endpoint,
        rotations=builder.rotations,
        rotated=builder.rotated,
        # As `sha256sum` of the file has it.
        nodes_authority=(
            hashlib.sha256(settings.vn_agent_authority_pem).hexdigest() if is_carried_out else None
        ),
        is_starting=builder.is_starting,
        waits_to_start=builder.waits_to_start,
        is_down=is_down and any(each.desired for each in parts),
    )


def _was_available(cluster: VirtualCluster) -> bool:
    type_ = ConditionType.CONTROL_PLANE_AVAILABLE
    return any(
        (each.type, each.status) == (type_, ConditionStatus.TRUE) for each in cluster.status.conditions
    )


def _ask(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    endpoint: str,
    *,
    is_running: bool,
) -> list[str]:
    """Ask what no watch shows. Returns the names of the probes."""
    authority = observed.live("Secret", control_plane.key, names.CLUSTER_CA)
    desired: list[tuple[ReadyzProbe | SyncerProbe | NodesProbe | ServedProbe, float]] = []
    if authority is not None and not is_running:
        desired.append((ReadyzProbe(endpoint, credentials.trusted(authority)), _NODES_S))
    if is_running:
        default = tenancy_names.super_namespace(control_plane.key, "default")
        if isinstance(default, str):
            desired.append((SyncerProbe(default, control_plane.uid), _SYNCER_S))
        client = Ref("Secret", control_plane.key, names.API_SERVER_KUBELET_CLIENT)
        pods = rollouts.replaced_pods(observed, control_plane)
        nodes = NodesProbe(client, settings.vn_agent_port, settings.vn_agent_authority_pem, pods)
        desired.append((nodes, rollouts.asked_after_s(observed, control_plane, _NODES_S)))
        asked_s = served.asked_after_s(observed, control_plane.key)
        desired.append((ServedProbe(control_plane.key), asked_s))
    for each, age_s in desired:
        due_in_s = availability.due_in_s(observed, each.name, age_s, _AWAITED_S)
        if due_in_s == 0.0:
            builder.probes.append(each)
        # The answer to one that is asked now has it planned again.
        builder.look_again(due_in_s or age_s or _AWAITED_S)
    # Its certificate is no matter of who waits for a tenant.
    return [each.name for each, _ in desired if not isinstance(each, ServedProbe)]


def _is_answered(found: ProbeResult | None) -> bool:
    """Whether there is an answer that stays for a while."""
    if found is None:
        return False
    return found.is_ok or found.failures >= availability.FIRST_TRIES
