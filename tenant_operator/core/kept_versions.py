# SPDX-License-Identifier: Apache-2.0
"""The ClusterVersions that a tenant's parts were made of, kept in its root namespace.

A ClusterVersion is other people's object: it is renamed, deleted, or edited to what a running control plane
cannot follow. The tenant goes on as it is then, with its certificates renewed, and its condition UpToDate
names the problem.
"""

from collections.abc import Mapping

import msgspec

from daemonkit.kube.resources import ObjectMeta
from tenancy import keys
from tenant_operator.core.live import is_as_desired
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder, Settings
from tenant_operator.core.steps import Apply
from tenant_operator.core.versions import applied_versions
from tenant_operator.life.upgrade import edit_problem
from tenant_operator.model import names
from tenant_operator.model.cluster_version import ClusterVersion, ClusterVersionSpec, Release
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.release import release_of, without_bundles
from tenant_operator.model.resolve import class_problem, control_plane_of
from tenant_operator.model.virtual_cluster import UpgradeStatus
from tenant_operator.pki.facts import digest_of

# A ConfigMap holds 1 MiB. Without bundles a ClusterVersion has a few thousand bytes.
_MAX_BYTES = 128 << 10
# Of the names in a message.
_SHOWN = 16


class KeptVersions(msgspec.Struct, frozen=True):
    """`versions` are all that the plan may use. `problems`, by name, are of those that are used as they were
    kept. `size_class` is the name of the class that the tenant had at the last plan without a problem."""

    versions: Mapping[str, ClusterVersion]
    problems: Mapping[str, SpecProblem] = {}
    size_class: str = ""


def read(observed: Observed) -> KeptVersions:
    """The ClusterVersions as they are, where the tenant can follow them; else as they were kept."""
    key = observed.virtual_cluster.status.cluster_namespace
    live = observed.live("ConfigMap", key, names.CLUSTER_VERSIONS)
    if live is None:
        return KeptVersions(observed.cluster_versions)
    versions, problems = dict(observed.cluster_versions), {}
    data: Mapping[str, str] = live.value.get("data") or {}
    for name, text in data.items():
        if name in versions and live.digests.get(name) == digest_of(_encoded(versions[name]).encode()):
            continue
        kept = _decoded(name, text)
        before = None if kept is None else release_of(kept)
        if kept is None or not isinstance(before, Release):
            continue  # edited by hand: nothing is known of it
        problem = _problem(before, versions.get(name), observed.virtual_cluster.spec.class_)
        if problem is not None:
            versions[name], problems[name] = kept, problem
    return KeptVersions(versions, problems, live.metadata.annotations.get(keys.SIZE_CLASS, ""))


class Resolved(msgspec.Struct, frozen=True):
    """`problem`: why it is not what the spec asks for, of a tenant that has a control plane already."""

    control_plane: ControlPlane
    problem: SpecProblem | None = None


def resolve(observed: Observed, settings: Settings, kept: KeptVersions) -> Resolved | SpecProblem:
    """All that is known of the tenant, or the field that is wrong."""
    cluster = observed.virtual_cluster
    found = _release(kept.versions, cluster.spec.cluster_version_name)
    problem = kept.problems.get(cluster.spec.cluster_version_name)
    if isinstance(found, SpecProblem):
        problem, running = found, _release(kept.versions, cluster.status.cluster_version)
        if isinstance(running, SpecProblem):
            return problem
        found = running
    made = control_plane_of(cluster, found, settings, observed.overlapping_clusters)
    if isinstance(made, SpecProblem) and kept.size_class:
        problem = problem or made
        spec = msgspec.structs.replace(cluster.spec, class_=kept.size_class)
        made = control_plane_of(msgspec.structs.replace(cluster, spec=spec), found, settings)
    return made if isinstance(made, SpecProblem) else Resolved(made, problem)


def with_members(resolved: Resolved, made_as: ControlPlane) -> Resolved:
    """With the problem that its class asks for another number of members than its store was made with."""
    asked, kept = (each.size.etcd.replicas for each in (resolved.control_plane, made_as))
    if resolved.problem is not None or asked == kept:
        return resolved
    problem = SpecProblem(
        "spec.class",
        "StoreMembersKept",
        f"the class asks for an etcd of {asked} members, and the tenant's has {kept}",
        "take the former class, or restore a backup into a new VirtualCluster of this class",
    )
    return msgspec.structs.replace(resolved, problem=problem)


def _release(versions: Mapping[str, ClusterVersion], name: str) -> Release | SpecProblem:
    version = versions.get(name)
    if version is not None:
        return release_of(version)
    known = ", ".join(sorted(versions)[:_SHOWN]) or "none"
    return SpecProblem(
        "spec.clusterVersionName",
        "ClusterVersionUnknown",
        f"ClusterVersion {name} does not exist; known are: {known}",
        "name one of them, or create it",
    )


def keep(
    builder: PlanBuilder,
    observed: Observed,
    resolved: Resolved,
    kept: KeptVersions,
    upgrade: UpgradeStatus | None,
) -> None:
    """Write what the tenant's parts are of, and are to be of, before they are."""
    control_plane, status = resolved.control_plane, observed.virtual_cluster.status
    applied = applied_versions(observed, control_plane.key)
    used = {status.cluster_version, control_plane.release.name}
    used |= {applied.etcd.version, applied.api_server.version, applied.controller_manager.version}
    if upgrade is not None and not upgrade.confirmed:
        used |= {upgrade.from_, upgrade.to}
    found = {name: _encoded(kept.versions[name]) for name in sorted(used) if name in kept.versions}
    asked = observed.virtual_cluster.spec.class_ or control_plane.release.default_class
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.CLUSTER_VERSIONS,
            "namespace": control_plane.key,
            "labels": control_plane.labels,
            "annotations": {keys.SIZE_CLASS: kept.size_class if resolved.problem else asked},
        },
        "data": {name: text for name, text in found.items() if len(text) <= _MAX_BYTES},
    }
    live = observed.live("ConfigMap", control_plane.key, names.CLUSTER_VERSIONS)
    if live is None or live.digests.keys() != found.keys() or not is_as_desired(live, manifest):
        builder.steps.append(Apply(manifest))


def _problem(before: Release, live: ClusterVersion | None, size_class: str) -> SpecProblem | None:
    if live is None:
        return SpecProblem(
            "spec.clusterVersionName",
            "ClusterVersionUnknown",
            f"ClusterVersion {before.name}, of which parts of the tenant are, does not exist any more; "
            f"the tenant stays as it is",
            "create it again, or upgrade to another one",
        )
    after = release_of(live)
    if isinstance(after, SpecProblem):
        return after
    return edit_problem(before, after) or class_problem(size_class, after)


def _encoded(version: ClusterVersion) -> str:
    return msgspec.json.encode(without_bundles(version.spec), order="sorted").decode()


def _decoded(name: str, text: str) -> ClusterVersion | None:
    try:
        spec = msgspec.json.decode(text, type=ClusterVersionSpec)
    except msgspec.DecodeError:
        return None
    return ClusterVersion(ObjectMeta(name=name), spec)
