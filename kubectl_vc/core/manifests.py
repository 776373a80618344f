# SPDX-License-Identifier: Apache-2.0
"""The VirtualClusters that the plugin makes, and the changes that it asks for."""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence

from kubectl_vc.core.command import ALL, Command
from kubectl_vc.core.faults import PluginError
from kubectl_vc.core.view import (
    API_VERSION,
    COMPLETED,
    Object,
    TenantView,
    at,
    objects,
    parsed_time,
    printed_time,
    text,
)
from tenancy import keys


def virtual_cluster(command: Command, cluster_version: str) -> Object:
    """That of `create`. What the command does not name is left to the defaults of the API."""
    given = {
        "clusterVersionName": cluster_version,
        "class": command.size_class,
        "serviceCidr": command.service_cidr,
        "clusterDomain": command.cluster_domain,
    }
    return _manifest(command.name, {key: value for key, value in given.items() if value})


def restored_copy(view: TenantView, command: Command) -> Object:
    """That of `restore --to`: as the one that was backed up, from its backup.

    What belongs to this one alone stays behind: its host name, and the Secret that it was imported from.
    """
    before = at(view.value, "spec")
    spec = (
        {key: value for key, value in before.items() if key != "import"} if isinstance(before, dict) else {}
    )
    exposure = spec.get("exposure")
    if isinstance(exposure, dict):
        spec["exposure"] = {key: value for key, value in exposure.items() if key != "hostName"}
    spec["clusterVersionName"] = view.version or view.desired_version
    spec["restoreFrom"] = {"backup": command.backup, "uid": view.uid}
    return _manifest(command.new_name, spec)


def chosen_version(named: str, known: Sequence[Object]) -> str:
    """The ClusterVersion of a new VirtualCluster: the named, the only one, or the default.

    Raises PluginError, with all that there are.
    """
    names = sorted(text(each, "metadata", "name") for each in known)
    defaults = [
        text(each, "metadata", "name")
        for each in known
        if text(each, "metadata", "annotations", keys.DEFAULT_VERSION) == "true"
    ]
    if named:
        if named in names:
            return named
        raise PluginError(f"ClusterVersion {named} is not in the super cluster; {_listed(names)}")
    if len(defaults) == 1 or (len(names) == 1 and not defaults):
        return defaults[0] if defaults else names[0]
    problem = f"{len(defaults)} ClusterVersions are" if defaults else "no ClusterVersion is"
    if not names:
        raise PluginError(f"the super cluster has no ClusterVersion; {_listed(names)}")
    annotation = f"{keys.DEFAULT_VERSION}=true"
    raise PluginError(f"{problem} annotated {annotation}; {_listed(names)}; choose with --cluster-version")


def rotations(what: Collection[str], token: str) -> dict[str, str]:
    """By what is to rotate, the token of the request."""
    return dict.fromkeys(keys.ROTATABLE if ALL in what else what, token)


def revoked_rotations(view: TenantView, what: Collection[str]) -> dict[str, str]:
    """By what rotates, the token of its rotation, which ends the former key. Raises PluginError."""
    under_way = {
        text(each, "what"): text(each, "token") for each in objects(view.value, "status", "rotations")
    }
    for each in what:
        if not under_way.get(each):
            raise PluginError(
                f"VirtualCluster {view.path}: no request of a person replaces {each} now, so it has no former"
                f" key to revoke; replace it first: kubectl vc rotate {view.name} {each} -n {view.namespace}"
            )
    return {each: under_way[each] for each in what}


def request_time(view: TenantView, other: str, now: dt.datetime) -> str:
    """For a request that is to win against the one at annotation `other`, whose author's clock may be
    ahead."""
    before = parsed_time(text(view.value, "metadata", "annotations", other))
    return printed_time(now if before is None else max(now, before + dt.timedelta(seconds=1)))


def request_token(now: dt.datetime) -> str:
    """Of a rotation: another one at each call of a person."""
    return printed_time(now)


def check_backup(view: TenantView, backup: str) -> None:
    """Raises PluginError unless there is a complete one; with all that there are."""
    known = _complete_backups(view)
    if backup not in known:
        make = f"make one: kubectl vc backup {view.name} -n {view.namespace}"
        there = f"there are: {', '.join(known)}" if known else make
        raise PluginError(f"VirtualCluster {view.path} has no backup {backup}; {there}")


def check_new_backup(view: TenantView, backup: str) -> None:
    """Raises PluginError if there is one of this name: a complete backup is not written again."""
    if backup in _complete_backups(view):
        raise PluginError(f"VirtualCluster {view.path} has a backup {backup} already; choose another name")


def was_restored(view: TenantView, backup: str) -> bool:
    """Whether this backup is the one that was restored last: the operator does no such request twice."""
    return text(view.value, "status", "restore", "backup") == backup


def backup_name(view: TenantView, now: dt.datetime) -> str:
    """Of a backup whose author names none."""
    return f"{view.name}-{now.astimezone(dt.UTC):%Y%m%d-%H%M%S}"


def volumes_patch(view: TenantView) -> Object:
    """Keeps the volumes of the object of this UID."""
    return {"metadata": {"uid": view.uid}, "spec": {"volumes": "Retain"}}


def version_patch(view: TenantView, target: str) -> Object:
    """Changes the ClusterVersion of exactly the object that was read."""
    return {
        "metadata": {"resourceVersion": text(view.value, "metadata", "resourceVersion")},
        "spec": {"clusterVersionName": target},
    }


def annotations_patch(view: TenantView, annotations: Mapping[str, str | None]) -> Object:
    """Annotates the object of this UID, and no later one of its name; None removes an annotation."""
    return {"metadata": {"uid": view.uid, "annotations": dict(annotations)}}


def rollback_target(view: TenantView) -> str:
    """The ClusterVersion of the one step back. Raises PluginError if there is none any more."""
    previous = text(view.value, "status", "previousClusterVersion")
    if not previous:
        raise PluginError(
            f"VirtualCluster {view.path} has not been upgraded: there is no version to go back to"
        )
    if at(view.value, "status", "upgrade", "confirmed") is True:
        raise PluginError(
            f"VirtualCluster {view.path}: the upgrade from {previous} is confirmed and cannot be taken back;"
            f" restore a backup: kubectl vc restore {view.name} -n {view.namespace} --from BACKUP"
        )
    return previous


def _complete_backups(view: TenantView) -> list[str]:
    found = objects(view.value, "status", "backups")
    return [text(each, "name") for each in found if text(each, "phase") == COMPLETED]


def _manifest(name: str, spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": "VirtualCluster", "metadata": {"name": name}, "spec": spec}


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "apply one: `kubectl explain clusterversion.spec` has its fields"
    return f"there are: {', '.join(names)}"
