# SPDX-License-Identifier: Apache-2.0
"""Which release each component is to run now: from the spec, the status and what the workloads show.

The status has an upgrade before anything changes for it. What is refused leaves the tenant as it runs.
"""

from collections.abc import Mapping

import msgspec

from tenancy import keys
from tenant_operator.core.conditions import ConditionType, Finding, fails, holds, timestamp
from tenant_operator.core.live import LiveObject
from tenant_operator.core.observed import Observed
from tenant_operator.core.workloads import readiness_of
from tenant_operator.life import upgrade as rules
from tenant_operator.life.requests import Requests
from tenant_operator.life.upgrade import AppliedVersion, AppliedVersions, Versions
from tenant_operator.model import names
from tenant_operator.model.cluster_version import Release
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.objects import Object
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.release import release_of
from tenant_operator.model.virtual_cluster import UpgradeStatus

_COMPONENTS = {
    names.ETCD: "StatefulSet",
    names.API_SERVER: "Deployment",
    names.CONTROLLER_MANAGER: "Deployment",
}


class VersionPlan(msgspec.Struct, frozen=True):
    """`versions` is None if nothing may be changed now. `upgrade` is what the status is to have."""

    versions: Versions | None
    upgrade: UpgradeStatus | None
    finding: Finding
    is_complete: bool = False

    @property
    def waits_for(self) -> str:
        """What comes before the next component."""
        return "" if self.versions is None else self.versions.waits_for


def releases_of(observed: Observed) -> dict[str, Release]:
    """All ClusterVersions that can be used, by their names."""
    found = {}
    for name, version in observed.cluster_versions.items():
        release = release_of(version)
        if isinstance(release, Release):
            found[name] = release
    return found


def versions_of(
    observed: Observed, key: str, target: Release, requests: Requests, *, is_asleep: bool
) -> VersionPlan:
    """The step towards `target` that is due."""
    status = observed.virtual_cluster.status
    releases = releases_of(observed)
    current = releases.get(status.cluster_version)
    judged = rules.judge(
        current,
        target,
        status.upgrade,
        current_name=status.cluster_version,
        running_version=status.kubernetes_version,
        now=timestamp(observed.now_s),
    )
    if isinstance(judged, SpecProblem):
        return VersionPlan(None, status.upgrade, _refused(judged))
    applied = applied_versions(observed, key)
    upgrade = judged.upgrade
    if rules.may_confirm(requests.confirmed_version, upgrade, applied, target) and upgrade is not None:
        upgrade = msgspec.structs.replace(upgrade, confirmed=True)
    if upgrade != status.upgrade:
        # Written first: an operator that is killed now goes on, or back, from the status.
        finding = fails(ConditionType.UP_TO_DATE, judged.reason, judged.message)
        return VersionPlan(None, upgrade, finding)
    versions = rules.components(applied, target, upgrade, releases, is_asleep=is_asleep)
    if isinstance(versions, SpecProblem):
        return VersionPlan(None, upgrade, _refused(versions))
    if versions.waits_for:
        message = f"{judged.message}; it waits for {versions.waits_for}"
        return VersionPlan(versions, upgrade, fails(ConditionType.UP_TO_DATE, versions.reason, message))
    message = f"Kubernetes {target.kubernetes_version} of ClusterVersion {target.name}"
    if upgrade is not None and not upgrade.confirmed and upgrade.to == target.name:
        name = observed.virtual_cluster.metadata.name
        message += (
            f", which emulates the minor version before until the upgrade is confirmed: kubectl vc upgrade "
            f"{name} --confirm; one step back until then: kubectl vc rollback {name}"
        )
    return VersionPlan(
        versions, upgrade, holds(ConditionType.UP_TO_DATE, "UpToDate", message), is_complete=True
    )


def with_versions(control_plane: ControlPlane, versions: Versions) -> ControlPlane:
    """The control plane as it is to be now."""
    return msgspec.structs.replace(
        control_plane,
        release=versions.api_server,
        controller_release=versions.controller_manager,
        etcd_release=versions.etcd,
        emulated_version=versions.emulated_version,
    )


def as_running(observed: Observed, control_plane: ControlPlane) -> tuple[ControlPlane, bool]:
    """The control plane as its workloads are: what is refused changes none of them. And whether it is known
    of what they are."""
    releases = releases_of(observed)
    applied = applied_versions(observed, control_plane.key)
    parts = (applied.api_server, applied.controller_manager, applied.etcd)
    if any(each.version and each.version not in releases for each in parts):
        return control_plane, False
    fallback = releases.get(applied.api_server.version, control_plane.release)
    running = msgspec.structs.replace(
        control_plane,
        release=fallback,
        controller_release=releases.get(applied.controller_manager.version, fallback),
        etcd_release=releases.get(applied.etcd.version, fallback),
        emulated_version=applied.api_server.emulated_version,
    )
    return running, True


def marked(manifest: Object, control_plane: ControlPlane) -> Object:
    """A workload with the version that it is applied with; other objects as they are."""
    name = manifest["metadata"]["name"]
    if _COMPONENTS.get(name) != manifest["kind"]:
        return manifest
    release = {
        names.ETCD: control_plane.etcd_release,
        names.CONTROLLER_MANAGER: control_plane.controller_release,
    }.get(name) or control_plane.release
    emulated = "" if name == names.ETCD else rules.emulated_by(release, control_plane.emulated_version)
    metadata = manifest["metadata"]
    annotations = {
        **metadata.get("annotations", {}),
        keys.APPLIED_VERSION: release.name,
        keys.EMULATED_VERSION: emulated,
    }
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def applied_versions(observed: Observed, key: str) -> AppliedVersions:
    """What the workloads show."""
    found: Mapping[str, AppliedVersion] = {
        name: _applied(name, observed.live(kind, key, name)) for name, kind in _COMPONENTS.items()
    }
    return AppliedVersions(found[names.ETCD], found[names.API_SERVER], found[names.CONTROLLER_MANAGER])


def _applied(name: str, live: LiveObject | None) -> AppliedVersion:
    if live is None:
        return AppliedVersion()
    readiness = readiness_of(name, live)
    annotations = live.metadata.annotations
    return AppliedVersion(
        annotations.get(keys.APPLIED_VERSION, ""),
        annotations.get(keys.EMULATED_VERSION, ""),
        is_settled=readiness.is_settled,
        is_rolling=readiness.is_observed and readiness.updated < readiness.replicas,
    )


def _refused(problem: SpecProblem) -> Finding:
    return fails(ConditionType.UP_TO_DATE, problem.reason, problem.text)
