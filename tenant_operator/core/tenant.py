# SPDX-License-Identifier: Apache-2.0
"""The plan for one VirtualCluster."""

import msgspec

from tenancy import names as tenancy_names
from tenant_operator.core import availability, native
from tenant_operator.core.conditions import ConditionType, Finding, fails, unknown
from tenant_operator.core.live import is_as_desired
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import Draft, Plan, Settings
from tenant_operator.core.probes import NodesProbe, ReadyzProbe, SyncerProbe
from tenant_operator.core.steps import Apply, LayDefaults
from tenant_operator.core.workloads import workloads
from tenant_operator.model import names
from tenant_operator.model.cluster_version import Release
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Ref
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.release import release_of
from tenant_operator.model.resolve import control_plane_of
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.pki.catalog import server_url
from tenant_operator.pki.facts import digest_of

# Of a tenant that is well, the parts that no watch shows are asked so often.
_SETTLED_S = 600.0
# While something is awaited.
_AWAITED_S = 1.0
RUNNING, UPDATING, PENDING = "Running", "Updating", "Pending"


def plan(observed: Observed, settings: Settings) -> Plan:
    """The next steps, with the status that goes with them."""
    if _is_of_another(observed.virtual_cluster):
        return Plan()
    resolved = _resolved(observed, settings)
    if isinstance(resolved, SpecProblem):
        message = f"{resolved.field}: {resolved.message}; {resolved.remedy}"
        return Plan(findings=(fails(ConditionType.READY, resolved.reason, message),), waits_for=message)
    draft = Draft()
    native.stages(draft, observed, resolved, settings)
    return _completed(draft, observed, resolved, settings)


def _is_of_another(cluster: VirtualCluster) -> bool:
    """Whether another provisioner has made its control plane, as upstream's does: it is left as it is."""
    is_served = cluster.status.phase in (RUNNING, UPDATING)
    return is_served and native.FINALIZER not in cluster.metadata.finalizers


def _resolved(observed: Observed, settings: Settings) -> ControlPlane | SpecProblem:
    """All that is known of the tenant, or the field that is wrong."""
    cluster = observed.virtual_cluster
    name = cluster.spec.cluster_version_name
    version = observed.cluster_versions.get(name)
    if version is None:
        known = ", ".join(sorted(observed.cluster_versions)) or "none"
        return SpecProblem(
            "spec.clusterVersionName",
            "ClusterVersionUnknown",
            f"ClusterVersion {name} does not exist; known are: {known}",
            "name one of them, or create it",
        )
    release = release_of(version)
    return control_plane_of(cluster, release, settings) if isinstance(release, Release) else release


def _completed(
    draft: Draft, observed: Observed, control_plane: ControlPlane, settings: Settings
) -> Plan:
    """The plan with its conditions, phase and probes."""
    cluster = observed.virtual_cluster
    parts = workloads(observed, control_plane)
    available = availability.control_plane_available(control_plane, parts)
    addresses = native.service_addresses(observed, control_plane)
    endpoint = server_url(addresses[0]) if addresses else ""
    is_running = cluster.status.phase == RUNNING
    if available.is_true:
        _ask(draft, observed, control_plane, settings, endpoint, is_running=is_running)
    readyz = observed.probes.get("readyz")
    if not is_running and readyz is not None and not readyz.is_ok and available.is_true:
        available = unknown(ConditionType.CONTROL_PLANE_AVAILABLE, "NotReachable", readyz.detail)
    if available.is_true and (is_running or (readyz is not None and readyz.is_ok)):
        _lay_rights(draft, observed, control_plane, settings)
    has_rights = observed.live("ConfigMap", control_plane.key, names.LAID_DEFAULTS) is not None
    is_served = is_running or (available.is_true and has_rights)
    findings: list[Finding] = [
        available,
        availability.syncer_attached(cluster.status.conditions, observed.probes.get("syncer")),
        availability.nodes_serving(observed.probes.get("nodes")),
    ]
    findings.insert(0, availability.ready(findings))
    if not findings[0].is_true:
        draft.wait(findings[0].message)
    return Plan(
        steps=tuple(draft.steps),
        probes=tuple(draft.probes),
        findings=tuple(findings),
        waits_for=draft.waits_for,
        check_again_s=draft.check_again_s,
        phase=RUNNING if is_served else PENDING,
        key=control_plane.key,
        endpoint=endpoint,
        cluster_version=control_plane.release.name if available.is_true else None,
        kubernetes_version=control_plane.release.kubernetes_version if available.is_true else None,
    )


def _lay_rights(draft: Draft, observed: Observed, control_plane: ControlPlane, settings: Settings) -> None:
    """Before the tenant is served: without its rights vc-syncer would report that it is refused."""
    digest = digest_of(msgspec.json.encode(settings.rights))
    laid = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.LAID_DEFAULTS,
            "namespace": control_plane.key,
            "labels": control_plane.labels,
        },
        "data": {"rights": digest},
    }
    live = observed.live("ConfigMap", control_plane.key, names.LAID_DEFAULTS)
    if live is None or not is_as_desired(live, laid):
        credential = Ref("Secret", control_plane.key, names.OPERATOR_CLIENT)
        draft.steps += [LayDefaults(credential, settings.rights), Apply(laid)]
        draft.wait(f"rights of vc-syncer in the tenant of {control_plane.key}")


def _ask(
    draft: Draft,
    observed: Observed,
    control_plane: ControlPlane,
    settings: Settings,
    endpoint: str,
    *,
    is_running: bool,
) -> None:
    """Ask what no watch shows."""
    authority = observed.live("Secret", control_plane.key, names.CLUSTER_CA)
    wanted: list[ReadyzProbe | SyncerProbe | NodesProbe] = []
    if authority is not None and not is_running:
        wanted.append(ReadyzProbe(endpoint, authority.certificates["tls.crt"]))
    if is_running:
        default = tenancy_names.super_namespace(control_plane.key, "default")
        if isinstance(default, str):
            wanted.append(SyncerProbe(default, control_plane.uid))
        wanted.append(
            NodesProbe(
                Ref("Secret", control_plane.key, names.API_SERVER_KUBELET_CLIENT),
                settings.vn_agent_port,
                settings.vn_agent_authority_pem,
            )
        )
    for each in wanted:
        if availability.is_due(observed, each.name, _SETTLED_S, _AWAITED_S):
            draft.probes.append(each)
    is_well = all((found := observed.probes.get(each.name)) is not None and found.is_ok for each in wanted)
    draft.look_again(_SETTLED_S if is_well else _AWAITED_S)
