# SPDX-License-Identifier: Apache-2.0
"""The plan for a control plane that others made: its kubeconfig is copied, and its API server registered at
nodes.

What the Secrets of others have is asked like a running part: they are in the VirtualCluster's namespace, and
no watch of ours shows them. A renewed kubeconfig is seen within 10 minutes.
"""

import msgspec

from tenancy import names as tenancy_names
from tenant_operator.core import availability, defaults, native
from tenant_operator.core.conditions import ConditionType, Finding, fails, holds, unknown
from tenant_operator.core.observed import Observed, ProbeResult
from tenant_operator.core.plan import PlanBuilder, Settings, TenantPlan
from tenant_operator.core.probes import SourceProbe, SyncerProbe
from tenant_operator.core.steps import CopyKubeconfig
from tenant_operator.core.writes import apply_all
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import ImportRef
from tenant_operator.provisioners.imported.adoption import is_copied
from tenant_operator.provisioners.imported.kubelet_client import registration

_SETTLED_S = 600.0
_AWAITED_S = 5.0
RUNNING, PENDING = "Running", "Pending"


def plan_imported(
    observed: Observed, resolved: ControlPlane, reference: ImportRef, settings: Settings
) -> TenantPlan:
    """The next steps. Nothing is written before the source can be adopted."""
    control_plane = _without_metrics_server(resolved)
    builder = PlanBuilder()
    probe = SourceProbe(reference, control_plane.namespace, control_plane.name)
    is_running = observed.virtual_cluster.status.phase == RUNNING
    _ask(builder, observed, control_plane, probe, is_running=is_running)
    source = observed.probes.get(probe.name)
    if source is None:
        builder.wait(f"Secret {control_plane.namespace}/{reference.secret_name} to be read")
        return _plan(builder, control_plane, (), None if is_running else PENDING)
    available = _available(source)
    is_copied_now = available.is_true and _settle(builder, observed, control_plane, source, reference)
    if is_copied_now and is_running:
        builder.findings += defaults.settle(builder, observed, control_plane, settings, names.SYNCER_CLIENT)
    findings = [
        available,
        availability.syncer_attached(
            observed.virtual_cluster.status.conditions, observed.probes.get("syncer")
        ),
        _nodes(source),
    ]
    findings.insert(0, availability.ready(findings))
    if not any(each.type is ConditionType.UP_TO_DATE for each in builder.findings):
        findings.append(holds(ConditionType.UP_TO_DATE, "Imported", "its versions are those of its maker"))
    if not findings[0].is_true:
        builder.wait(findings[0].message)
    phase = RUNNING if is_copied_now or is_running else PENDING
    return _plan(builder, control_plane, (*findings, *builder.findings), phase, source)


def _without_metrics_server(resolved: ControlPlane) -> ControlPlane:
    """No node knows a client of it: the operator does not have the authority for its certificate."""
    images = msgspec.structs.replace(resolved.release.images, metrics_server="")
    return msgspec.structs.replace(resolved, release=msgspec.structs.replace(resolved.release, images=images))


def _ask(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    probe: SourceProbe,
    *,
    is_running: bool,
) -> None:
    # A copy that failed may have met another version of the Secret.
    if observed.failures or availability.is_due(observed, probe.name, _SETTLED_S, _AWAITED_S):
        builder.probes.append(probe)
    default = tenancy_names.super_namespace(control_plane.key, "default")
    if (
        is_running
        and isinstance(default, str)
        and availability.is_due(observed, "syncer", _SETTLED_S, _AWAITED_S)
    ):
        builder.probes.append(SyncerProbe(default, control_plane.uid))
    for name in (probe.name, "syncer") if is_running else (probe.name,):
        due_in_s = availability.due_in_s(observed, name, _SETTLED_S, _AWAITED_S)
        builder.look_again(due_in_s or _SETTLED_S)


def _settle(
    builder: PlanBuilder,
    observed: Observed,
    control_plane: ControlPlane,
    source: ProbeResult,
    reference: ImportRef,
) -> bool:
    """The root namespace, the copy, and the registration. Returns whether the copy is there."""
    if not native.claim(builder, observed, control_plane):
        return False
    facts = source.facts
    if "certificate" in facts:
        pair = facts["certificate"], facts["authority"]
        apply_all(builder, observed, registration(*pair, control_plane.key, control_plane.labels))
    target = Ref("Secret", control_plane.key, names.SYNCER_CLIENT)
    live = observed.objects.get(target)
    if is_copied(facts["digest"], None if live is None else live.metadata.annotations):
        return True
    origin = Ref("Secret", control_plane.namespace, reference.secret_name)
    builder.steps.append(CopyKubeconfig(origin, facts["key"], target, facts["digest"], control_plane.labels))
    builder.wait(str(target))
    return False


def _available(source: ProbeResult) -> Finding:
    type_ = ConditionType.CONTROL_PLANE_AVAILABLE
    if not source.is_ok:
        return fails(type_, source.facts.get("reason", "ImportNotReachable"), source.detail)
    return holds(type_, "ImportedAnswers", source.detail)


def _nodes(source: ProbeResult) -> Finding:
    """Nodes cannot be asked in the API server's name: its key is not here."""
    type_ = ConditionType.NODES_SERVING
    if not source.is_ok:
        return unknown(type_, "NotAsked", "the control plane is not adopted")
    if "certificate" not in source.facts:
        return fails(type_, "KubeletClientUnknown", source.facts.get("kubeletClient", ""))
    return holds(type_, "ClientRegistered", f"registered from {source.facts['certificatePlace']}")


def _plan(
    builder: PlanBuilder,
    control_plane: ControlPlane,
    findings: tuple[Finding, ...],
    phase: str | None,
    source: ProbeResult | None = None,
) -> TenantPlan:
    facts = {} if source is None else source.facts
    return TenantPlan(
        steps=tuple(builder.steps),
        probes=tuple(builder.probes),
        findings=findings,
        waits_for=builder.waits_for,
        check_again_s=builder.check_again_s,
        phase=phase,
        key=control_plane.key,
        endpoint=facts.get("server"),
        kubernetes_version=facts.get("version", "").removeprefix("v") or None,
    )
